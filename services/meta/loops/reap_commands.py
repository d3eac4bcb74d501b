"""Take commands back from workers that were lost: to the queue again, or to their end."""

from typing import Any, NamedTuple

from noetl_common import metrics
from noetl_common.bus import Bus
from noetl_common.core.events import Envelope, Event
from noetl_common.db import Pool, transaction
from noetl_common.log import get_logger
from noetl_common.subjects import commands_bell, shard_bell
from services.meta import store
from services.meta.loops.elect_leader import Leadership
from services.meta.store import Expired

log = get_logger(__name__)
BATCH_COMMANDS_MAX = 500
DELAY_MAX_S = 60.0


class Verdict(NamedTuple):
    """What becomes of a batch of expired commands."""

    reissued: list[Expired]
    cancelled: list[Expired]
    poisoned: list[Expired]


async def reap_commands_once(pool: Pool, leadership: Leadership, bus: Bus, *, crashes_max: int) -> int:
    """Reap expired commands if this process leads, one transaction a shard; return how many."""
    if leadership.leader() is None:
        return 0
    reaped = 0
    for shard_id in await store.shards_with_expired(pool, BATCH_COMMANDS_MAX):
        verdict = await _reap_shard(pool, leadership, shard_id=shard_id, crashes_max=crashes_max)
        await _announce(bus, shard_id, verdict)
        reaped += sum(map(len, verdict))
    return reaped


async def _reap_shard(pool: Pool, leadership: Leadership, *, shard_id: int, crashes_max: int) -> Verdict:
    leader = leadership.leader()
    if leader is None:
        return Verdict([], [], [])
    async with transaction(pool) as conn:
        # 1. gather
        expired = await store.lock_expired(conn, leader, shard_id, limit=BATCH_COMMANDS_MAX)
        # 2. decide
        verdict = judge(expired, crashes_max)
        # 3. apply
        await store.reissue(conn, [{**_key(c), "delay_s": delay_s(c.crash_count)} for c in verdict.reissued])
        ended = [{**_key(c), "status": "cancelled"} for c in verdict.cancelled]
        ended += [{**_key(c), "status": "failed"} for c in verdict.poisoned]
        await store.end(conn, ended)
        await store.bury(conn, [{**_key(c), "step": c.step, "detail": _detail(c)} for c in verdict.poisoned])
        inputs = [*map(cancellation, verdict.cancelled), *map(failure, verdict.poisoned)]
        await store.append(conn, shard_id, inputs)
    return verdict


def judge(expired: list[Expired], crashes_max: int) -> Verdict:
    """Return what becomes of each command: cancelled if someone asked, poison at `crashes_max`, else once more."""
    verdict = Verdict([], [], [])
    for command in expired:
        if command.cancel_requested:
            verdict.cancelled.append(command)
        elif command.crash_count + 1 >= crashes_max:
            verdict.poisoned.append(command)
        else:
            verdict.reissued.append(command)
    return verdict


def delay_s(crash_count: int) -> float:
    """Return how long a command waits in the queue, after so many crashes before this one: 0, 2, 4, 8 ... 60 s."""
    # The first time the worker was most likely just killed: the next one may have the command at once.
    return 0.0 if crash_count == 0 else min(DELAY_MAX_S, 2.0**crash_count)


def cancellation(command: Expired) -> Event:
    """Return the input that says a command was cancelled and its worker is gone."""
    return _terminal(command, "command.cancelled", Envelope(status="CANCELLED"))


def failure(command: Expired) -> Event:
    """Return the input that says a command was given up."""
    crashes = command.crash_count + 1
    message = f"step {command.step!r}: the worker was lost {crashes} times while it ran this command"
    error = {"code": "POISON", "message": message, "kind": "poison", "retryable": False}
    return _terminal(command, "command.failed", Envelope(status="FAILED", error=error))


def _terminal(command: Expired, event_type: str, result: Envelope) -> Event:
    return Event(
        execution_id=command.execution_id,
        event_type=event_type,
        step=command.step,
        command_id=command.command_id,
        attempt=command.attempt,
        loop_epoch=command.loop_epoch,
        iter_index=command.iter_index,
        status=result.status,
        result=result,
        dedup_key=f"done:{command.command_id}",
        worker_id=command.worker_id or "",
    )


async def _announce(bus: Bus, shard_id: int, verdict: Verdict) -> None:
    for reason, commands in zip(("lease_expired", "cancelled", "poison"), verdict, strict=True):
        if commands:
            metrics.inc("noetl_reaper_reissued_total", len(commands), reason=reason)
            names = sorted({c.worker_id or "" for c in commands})
            log.warning("commands.reaped", shard_id=shard_id, reason=reason, commands=len(commands), workers=names)
    for pool in sorted({command.pool for command in verdict.reissued}):
        await bus.publish(commands_bell(pool))
    if verdict.cancelled or verdict.poisoned:
        await bus.publish(shard_bell(shard_id))


def _key(command: Expired) -> dict[str, Any]:
    return {"execution_id": command.execution_id, "command_id": command.command_id}


def _detail(command: Expired) -> dict[str, Any]:
    return {"attempt": command.attempt, "crash_count": command.crash_count + 1, "worker_id": command.worker_id}
