"""What becomes of a worker's reports: each is kept until ingest has answered for it, and sent no more afterwards."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from noetl_common.errors import Invalid, Unavailable
from noetl_common.wire import ClaimedCommand, Report, Reported
from services.worker.loops.report_results import report_results_once
from services.worker.outbox import Outbox
from services.worker.perform import cancellation


class Ingest:
    """Answers for reports, but not for those it is told to refuse, and not while it is away."""

    def __init__(self, *, refused: Sequence[int] = (), away_at: Sequence[int] = ()) -> None:
        self.refused = refused
        self.away_at = away_at
        self.accepted: list[int] = []

    async def report(self, reports: list[Report]) -> Reported:
        tokens = [report.claim_token for report in reports]
        if set(tokens) & set(self.away_at):
            raise Unavailable("away")
        if any(report.claim_token in self.refused and report.event_type != "command.failed" for report in reports):
            raise Invalid("refused")
        self.accepted += tokens
        return Reported(status="ok", event_ids=tokens, outcomes=["accepted"] * len(tokens))


def outbox_of(tokens: range) -> tuple[Outbox, list[int]]:
    dropped: list[int] = []
    outbox = Outbox(dropped.append)
    for token in tokens:
        outbox.put(
            cancellation(
                ClaimedCommand(
                    execution_id=1, command_id=token, event_id=1, step="s", attempt=1, claim_token=token, context_id=1
                )
            )
        )
    return outbox, dropped


def waiting(outbox: Outbox) -> list[int]:
    return [report.claim_token for report in outbox.take()]


async def test_what_was_answered_is_gone_with_its_lease() -> None:
    outbox, dropped = outbox_of(range(1, 4))
    ingest = Ingest()
    assert await report_results_once(outbox, cast(Any, ingest)) == 3
    assert ingest.accepted == dropped == [1, 2, 3] and not outbox
    assert await report_results_once(outbox, cast(Any, ingest)) == 0


async def test_what_could_not_be_sent_waits_in_front() -> None:
    outbox, dropped = outbox_of(range(1, 4))
    with pytest.raises(Unavailable):
        await report_results_once(outbox, cast(Any, Ingest(away_at=[2])))
    assert not dropped and outbox.due.is_set()
    outbox.put(
        cancellation(
            ClaimedCommand(execution_id=1, command_id=4, event_id=1, step="s", attempt=1, claim_token=4, context_id=1)
        )
    )
    assert waiting(outbox) == [1, 2, 3, 4]


async def test_a_refused_report_is_found_by_halving_and_replaced_by_a_failure() -> None:
    outbox, dropped = outbox_of(range(1, 8))
    ingest = Ingest(refused=[5])
    assert await report_results_once(outbox, cast(Any, ingest)) == 7
    assert ingest.accepted == dropped == [1, 2, 3, 4, 5, 6, 7] and not outbox


async def test_the_half_that_was_answered_is_not_sent_again_when_the_other_fails() -> None:
    outbox, dropped = outbox_of(range(1, 5))
    ingest = Ingest(refused=[1])

    async def report(reports: list[Report]) -> Reported:
        ingest.away_at = [3] if ingest.accepted else []
        return await Ingest.report(ingest, reports)

    away = cast(Any, ingest)
    away.report = report
    with pytest.raises(Unavailable):
        await report_results_once(outbox, away)
    assert dropped == [1, 2] and waiting(outbox) == [3, 4]
