"""How many commands a worker asks for: many of the quick ones, a few of the slow ones."""

import asyncio

from noetl_common.core.events import Envelope
from noetl_common.wire import ClaimedCommand, Report
from services.worker.desk import CLAIM_MAX, CLAIM_MIN, Desk
from services.worker.perform import cancellation


def command(number: int) -> ClaimedCommand:
    return ClaimedCommand(
        execution_id=1, command_id=number, event_id=number, step="s", attempt=1, claim_token=number, context_id=1
    )


async def run(desk: Desk, numbers: range, *, gate: asyncio.Event) -> None:
    async def work(number: int) -> Report:
        await gate.wait()
        report = cancellation(command(number))
        report.result = Envelope(status="COMPLETED")
        return report

    for number in numbers:
        desk.start(command(number), work(number))
    await asyncio.sleep(0)


async def ended(desk: Desk) -> None:
    await asyncio.gather(*(running.task for running in list(desk.running.values())))


async def test_a_worker_asks_for_few_commands_until_some_have_ended() -> None:
    desk, gate = Desk(256), asyncio.Event()
    await run(desk, range(40), gate=gate)
    assert desk.appetite() == desk.appetite() == CLAIM_MIN
    gate.set()
    await ended(desk)
    assert desk.appetite() == 80
    assert desk.appetite() == CLAIM_MIN


async def test_a_worker_never_asks_for_more_than_it_has_slots() -> None:
    desk, gate = Desk(1000), asyncio.Event()
    gate.set()
    await run(desk, range(400), gate=gate)
    await ended(desk)
    assert desk.appetite() == CLAIM_MAX
    small = Desk(20)
    await run(small, range(15), gate=asyncio.Event())
    assert small.appetite() == 5
    for running in small.running.values():
        running.task.cancel()
