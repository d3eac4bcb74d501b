"""How many commands a worker asks for, many of the quick ones and a few of the slow ones; where its reports wait."""

import asyncio
from collections.abc import Iterable

from noetl_common.core.events import Envelope
from noetl_common.wire import ClaimedCommand, Report
from services.worker.desk import CLAIM_MAX, CLAIM_MIN, Desk
from services.worker.perform import cancellation


def command(number: int, *, execution_id: int = 1) -> ClaimedCommand:
    return ClaimedCommand(
        execution_id=execution_id,
        command_id=number,
        event_id=number,
        step="s",
        attempt=1,
        claim_token=number,
        context_id=1,
    )


async def run(desk: Desk, commands: Iterable[ClaimedCommand], *, gate: asyncio.Event) -> None:
    async def work(one: ClaimedCommand) -> Report:
        await gate.wait()
        report = cancellation(one)
        report.result = Envelope(status="COMPLETED")
        return report

    for one in commands:
        desk.start(one, work(one))
    await asyncio.sleep(0)


async def ended(desk: Desk) -> None:
    await asyncio.gather(*(running.task for running in list(desk.running.values())))


async def test_a_worker_asks_for_few_commands_until_some_have_ended() -> None:
    desk, gate = Desk(256), asyncio.Event()
    await run(desk, map(command, range(40)), gate=gate)
    assert desk.appetite() == desk.appetite() == CLAIM_MIN
    gate.set()
    await ended(desk)
    assert desk.appetite() == 80
    assert desk.appetite() == CLAIM_MIN


async def test_a_worker_never_asks_for_more_than_it_has_slots() -> None:
    desk, gate = Desk(1000), asyncio.Event()
    gate.set()
    await run(desk, map(command, range(400)), gate=gate)
    await ended(desk)
    assert desk.appetite() == CLAIM_MAX
    small = Desk(20)
    await run(small, map(command, range(15)), gate=asyncio.Event())
    assert small.appetite() == 5
    for running in small.running.values():
        running.task.cancel()


async def test_the_report_of_a_lone_run_does_not_wait_behind_those_of_a_crowd() -> None:
    desk, gate = Desk(64), asyncio.Event()
    crowd = [command(number) for number in range(1, 21)]
    lone = command(99, execution_id=2)
    desk.leases.add([*crowd, lone])
    await run(desk, [*crowd, lone], gate=gate)
    gate.set()
    await ended(desk)
    assert [report.execution_id for report in desk.outbox.take()] == [2]
    assert desk.reports_waiting() == len(desk.crowd_outbox) == 20


async def test_a_crowd_is_one_until_ingest_has_its_reports() -> None:
    desk, gate = Desk(64), asyncio.Event()
    gate.set()
    commands = [command(number) for number in range(1, 21)]
    desk.leases.add(commands)
    desk.leases.add(commands[:1])  # found again: it is held already
    await run(desk, commands, gate=gate)
    await ended(desk)
    for report in desk.crowd_outbox.take()[8:]:
        desk.crowd_outbox.let_go(report)
    assert desk.leases.count(1) == 8
    desk.leases.drop(1)
    desk.leases.drop(1)  # told twice
    assert desk.leases.count(1) == 7
    await run(desk, [command(2)], gate=gate)
    await ended(desk)
    assert len(desk.outbox) == 1
