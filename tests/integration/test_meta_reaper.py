"""The reaper takes commands back from lost workers: once more, cancelled, or given up as poison; never twice."""

from noetl_common.bus import MemoryBus
from noetl_common.clock import SystemClock
from noetl_common.db import Pool
from noetl_common.subjects import commands_bell, shard_bell
from services.meta.loops.elect_leader import Leadership, elect_leader_once
from services.meta.loops.reap_commands import delay_s, reap_commands_once
from tests.histories import claimed_command, execute, make_execution, rows
from tests.running import wait_until

COMMAND = (
    "SELECT status, claim_token, worker_id, crash_count, lease_until, attempt,"
    " extract(epoch FROM available_at - clock_timestamp())::float8 AS wait_s FROM noetl.command WHERE command_id = %s"
)
LAST_EVENT = (
    "SELECT event_type, command_id, step, status, result, dedup_key FROM noetl.event"
    " WHERE execution_id = %s ORDER BY event_id DESC"
)


async def reap(pool: Pool, bus: MemoryBus | None = None) -> int:
    leadership = Leadership(instance="m", lease_s=4.0, clock=SystemClock())
    await elect_leader_once(pool, leadership)
    return await reap_commands_once(pool, leadership, bus or MemoryBus(), crashes_max=3)


async def test_an_expired_command_is_claimable_at_once_after_the_first_crash(pool: Pool) -> None:
    command_id = await claimed_command(pool, await make_execution(pool, 4), 4)
    assert await reap(pool) == 1
    assert await reap(pool) == 0
    (row,) = await rows(pool, COMMAND, command_id)
    assert (row["status"], row["claim_token"], row["worker_id"], row["lease_until"]) == ("pending", None, None, None)
    assert (row["crash_count"], row["attempt"]) == (1, 1)
    assert row["wait_s"] <= 0


async def test_it_waits_longer_after_each_crash(pool: Pool) -> None:
    command_id = await claimed_command(pool, await make_execution(pool, 4), 4, crash_count=1)
    await reap(pool)
    (row,) = await rows(pool, COMMAND, command_id)
    assert (row["status"], row["crash_count"]) == ("pending", 2)
    assert 1 < row["wait_s"] <= 2
    assert [delay_s(crashes) for crashes in (0, 1, 2, 3, 9)] == [0, 2, 4, 8, 60]


async def test_a_command_on_a_valid_lease_and_a_finished_one_are_left_alone(pool: Pool) -> None:
    execution_id = await make_execution(pool, 4)
    await claimed_command(pool, execution_id, 4, lease_s=30)
    await claimed_command(pool, execution_id, 4, status="completed")
    assert await reap(pool) == 0


async def test_at_the_third_crash_it_is_poison_with_a_dead_letter_and_one_failure(pool: Pool) -> None:
    execution_id = await make_execution(pool, 4)
    command_id = await claimed_command(pool, execution_id, 4, crash_count=2, step="boom")
    assert await reap(pool) == 1
    (row,) = await rows(pool, COMMAND, command_id)
    assert (row["status"], row["crash_count"]) == ("failed", 3)
    (found,) = await rows(pool, LAST_EVENT, execution_id)
    assert (found["event_type"], found["dedup_key"]) == ("command.failed", f"done:{command_id}")
    error = found["result"]["error"]
    assert (error["code"], error["kind"], error["retryable"]) == ("POISON", "poison", False)
    assert "'boom'" in error["message"] and "3 times" in error["message"]
    (letter,) = await rows(pool, "SELECT step, reason, detail FROM noetl.dead_letter WHERE command_id = %s", command_id)
    assert (letter["step"], letter["reason"], letter["detail"]["crash_count"]) == ("boom", "POISON", 3)


async def test_a_command_someone_cancelled_ends_instead_of_running_again(pool: Pool) -> None:
    execution_id = await make_execution(pool, 4)
    command_id = await claimed_command(pool, execution_id, 4, cancel_requested=True, crash_count=2)
    assert await reap(pool) == 1
    (row,) = await rows(pool, COMMAND, command_id)
    assert row["status"] == "cancelled"
    (found,) = await rows(pool, LAST_EVENT, execution_id)
    assert (found["event_type"], found["command_id"]) == ("command.cancelled", command_id)


async def test_a_command_that_a_report_is_finishing_now_is_left_to_it(pool: Pool) -> None:
    execution_id = await make_execution(pool, 4)
    held = await claimed_command(pool, execution_id, 4)
    await claimed_command(pool, execution_id, 4)
    async with pool.connection() as finishing, finishing.transaction():
        await finishing.execute("UPDATE noetl.command SET status = 'completed' WHERE command_id = %s", [held])
        assert await reap(pool) == 1
    (row,) = await rows(pool, COMMAND, held)
    assert row["status"] == "completed"


async def test_a_process_that_leads_no_more_reaps_nothing(pool: Pool) -> None:
    await claimed_command(pool, await make_execution(pool, 4), 4)
    leadership = Leadership(instance="m", lease_s=4.0, clock=SystemClock())
    await elect_leader_once(pool, leadership)
    await execute(pool, "UPDATE noetl.execution_shard SET owner_instance = 'other', epoch = 9 WHERE role = 'meta'")
    assert await reap_commands_once(pool, leadership, MemoryBus(), crashes_max=3) == 0


async def test_the_bells_of_the_pools_and_the_shards_ring(pool: Pool) -> None:
    bus, rung = MemoryBus(), set[str]()

    async def hear(subject: str, _payload: bytes) -> None:
        rung.add(subject)

    await bus.subscribe("noetl.>", hear)
    await claimed_command(pool, await make_execution(pool, 4), 4, pool="gpu")
    await claimed_command(pool, await make_execution(pool, 5), 5, crash_count=2)
    assert await reap(pool, bus) == 2
    await wait_until(lambda: rung == {commands_bell("gpu"), shard_bell(5)}, what="both bells ring")
    await bus.close()
