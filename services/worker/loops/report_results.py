"""Send the reports that wait, as many as fit one request; each is kept until ingest has answered for it."""

from collections.abc import AsyncIterator
from functools import partial

from noetl_common import metrics
from noetl_common.errors import Invalid, TooLarge
from noetl_common.log import get_logger
from noetl_common.loop import Loop
from noetl_common.wire import Report
from services.worker.api import Api
from services.worker.desk import Desk
from services.worker.outbox import Outbox
from services.worker.perform import failed_instead

log = get_logger(__name__)

REQUESTS_AT_ONCE = 3  # of an outbox: what ends meanwhile does not wait until all before it is committed


def reporting_loops(desk: Desk, api: Api) -> list[Loop]:
    """Return what sends the reports of a worker."""
    return [
        Loop(name=name, once=partial(report_results_once, outbox, api), idle_pause_s=1.0, wake=outbox.due)
        for name, outbox in zip(("report_results", "report_crowd"), desk.outboxes, strict=True)
        for _ in range(REQUESTS_AT_ONCE)
    ]


async def report_results_once(outbox: Outbox, api: Api) -> int:
    """Send one batch; return how many reports were answered, 0 when none waits.

    Errors: those of the API; the reports then still wait. One that ingest refuses is replaced by a plain failure.
    """
    batch = outbox.take()
    if not batch:
        return 0
    answered: set[int] = set()  # claim tokens
    try:
        async for report in _sent(batch, api):
            answered.add(report.claim_token)
            outbox.let_go(report)
    finally:
        if len(answered) < len(batch):
            outbox.put_back([report for report in batch if report.claim_token not in answered])
    return len(batch)


async def _sent(batch: list[Report], api: Api) -> AsyncIterator[Report]:
    """Send a batch; yield each report as ingest has answered for it. Errors: those of the API, but for a refusal."""
    try:
        answer = await api.report(batch)
    except (Invalid, TooLarge) as exc:
        if len(batch) == 1:
            await _send_instead(batch[0], exc, api)
            yield batch[0]
            return
        half = len(batch) // 2
        for part in (batch[:half], batch[half:]):
            async for report in _sent(part, api):
                yield report
        return
    for report, outcome in zip(batch, answer.outcomes, strict=True):
        metrics.inc("noetl_worker_reports_total", 1, outcome=outcome)
        if outcome in ("fenced", "unknown"):
            log.warning("report.dropped", outcome=outcome, **_names(report))
        yield report


async def _send_instead(report: Report, refusal: Invalid | TooLarge, api: Api) -> None:
    log.error("report.refused", error=refusal, **_names(report))
    substitute = failed_instead(report, f"the report was refused: {refusal}")
    try:
        await api.report([substitute])
    except (Invalid, TooLarge) as exc:
        # Nothing that this worker can say is accepted; its lease runs out and the reaper decides.
        log.error("report.given_up", error=exc, **_names(report))
    metrics.inc("noetl_worker_reports_total", 1, outcome="refused")


def _names(report: Report) -> dict[str, object]:
    return {"execution_id": report.execution_id, "step": report.step, "command_id": report.command_id}
