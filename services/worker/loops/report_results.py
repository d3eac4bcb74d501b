"""Send the reports that wait, as many as fit one request; each is kept until ingest has answered for it."""

from noetl_common import metrics
from noetl_common.errors import Invalid, TooLarge
from noetl_common.log import get_logger
from noetl_common.wire import BATCH_EVENTS_MAX, Report
from services.worker.api import Api
from services.worker.desk import Desk
from services.worker.perform import failed_instead

log = get_logger(__name__)

INLINE_BYTES_MAX = 2 * 1024 * 1024
REPORT_BYTES = 1500  # of a report and its row without payload, roughly


async def report_results_once(desk: Desk, api: Api) -> int:
    """Send one batch; return how many reports were answered, 0 when none waits.

    Errors: those of the API; the reports then still wait. One that ingest refuses is replaced by a plain failure.
    """
    batch = _take(desk)
    if not batch:
        return 0
    try:
        return await _send(batch, desk, api)
    except BaseException:
        desk.put_back([report for report in batch if report.claim_token not in desk.answered])
        raise
    finally:
        desk.answered.clear()


async def _send(batch: list[Report], desk: Desk, api: Api) -> int:
    try:
        answer = await api.report(batch)
    except (Invalid, TooLarge) as exc:
        if len(batch) > 1:
            half = len(batch) // 2
            return await _send(batch[:half], desk, api) + await _send(batch[half:], desk, api)
        return await _send_instead(batch[0], exc, desk, api)
    for report, outcome in zip(batch, answer.outcomes, strict=True):
        metrics.inc("noetl_worker_reports_total", 1, outcome=outcome)
        if outcome in ("fenced", "unknown"):
            log.warning("report.dropped", outcome=outcome, **_names(report))
        _let_go(report, desk)
    return len(batch)


async def _send_instead(report: Report, refusal: Invalid | TooLarge, desk: Desk, api: Api) -> int:
    log.error("report.refused", error=refusal, **_names(report))
    substitute = failed_instead(report, f"the report was refused: {refusal}")
    try:
        await api.report([substitute])
    except (Invalid, TooLarge) as exc:
        # Nothing that this worker can say is accepted; its lease runs out and the reaper decides.
        log.error("report.given_up", error=exc, **_names(report))
    metrics.inc("noetl_worker_reports_total", 1, outcome="refused")
    _let_go(report, desk)
    return 1


def _let_go(report: Report, desk: Desk) -> None:
    desk.answered.add(report.claim_token)
    desk.leases.drop(report.claim_token)


def _take(desk: Desk) -> list[Report]:
    batch: list[Report] = []
    size = 0
    while desk.finished and len(batch) < BATCH_EVENTS_MAX:
        report = desk.finished[0]
        size += REPORT_BYTES + sum(row.bytes for row in report.results if row.inline is not None)
        if batch and size > INLINE_BYTES_MAX:
            break
        batch.append(desk.finished.popleft())
    return batch


def _names(report: Report) -> dict[str, object]:
    return {"execution_id": report.execution_id, "step": report.step, "command_id": report.command_id}
