"""The races for commands: claims, heartbeats, reports, reaping, cancelling; the statements of the product, by hand."""

from collections.abc import Sequence
from typing import Any

from noetl_common import event_log
from noetl_common.db import Conn, json_text
from services.meta import store as meta_store
from services.meta.loops.reap_commands import cancellation, failure
from services.meta.store import Leader
from tests.histories import event, report
from tests.isolation import Outcome, Spec, Step, World, begin, commit, statement
from tests.race_specs import INGEST, LEASE_S
from tests.race_world import SHARD, events_of, execution_in, lease, queue, reset, rows

LEADER = Leader("m", 1)
TERMINAL = ("command.completed", "command.failed", "command.cancelled")


def finish(session: str, token: int) -> list[Step]:
    """Return the steps of one report: finish the command if the claim fits, and append the input if it did."""

    async def finish_(conn: Conn, world: World) -> str:
        (command_id,) = world["commands"]
        given = {
            "place": 0,
            "execution_id": world["execution_id"],
            "command_id": command_id,
            "claim_token": token,
            "worker_id": session,
            "attempt": 0,
            "status": "completed",
        }
        found = await (await conn.execute(INGEST["finish_commands"], {"reports": json_text([given])})).fetchone()
        assert found is not None
        return str(found["outcome"])

    async def append(conn: Conn, world: World) -> int:
        if world[f"{session}.finish"] != "accepted":
            return 0
        (command_id,) = world["commands"]
        (id_,) = await event_log.append(conn, SHARD, [report(world["execution_id"], command_id)])
        return id_

    return [
        begin(session),
        Step(f"{session}.finish", finish_),
        Step(f"{session}.append", append),
        commit(session),
    ]


def reap(session: str) -> list[Step]:
    """Return the steps in which meta takes expired commands back: to the queue, or to their end as poison."""

    async def lock(conn: Conn, _world: World) -> list[Any]:
        return list(await meta_store.lock_expired(conn, LEADER, SHARD, limit=10))

    async def judge(conn: Conn, world: World) -> int:
        expired = world[f"{session}.lock"]
        keys = [{"execution_id": one.execution_id, "command_id": one.command_id} for one in expired]
        poisoned = [one for one in expired if one.crash_count >= 2]
        cancelled = [one for one in expired if one.cancel_requested]
        if cancelled or poisoned:
            status = "cancelled" if cancelled else "failed"
            await meta_store.end(conn, [{**key, "status": status} for key in keys])
            inputs = [cancellation(one) for one in cancelled] or [failure(one) for one in poisoned]
            return sum(bool(id_) for id_ in await meta_store.append(conn, SHARD, inputs))
        await meta_store.reissue(conn, [{**key, "delay_s": 0.0} for key in keys])
        return 0

    return [begin(session), Step(f"{session}.lock", lock), Step(f"{session}.judge", judge), commit(session)]


def claim(name: str, max_: int) -> Step:
    """Return the step in which a worker claims some commands."""
    args = {"pool": "default", "worker_id": name.partition(".")[0], "max": max_, "lease_s": LEASE_S}
    return statement(name, INGEST["claim_commands"], lambda _world: args)


def beat(name: str, token: int) -> Step:
    """Return the step in which a worker renews the lease of its command."""

    def args(world: World) -> dict[str, Any]:
        (command_id,) = world["commands"]
        given = {"execution_id": world["execution_id"], "command_id": command_id, "claim_token": token}
        return {"leases": json_text([given]), "lease_s": LEASE_S}

    return statement(name, INGEST["renew_leases"], args)


def cancel(session: str) -> list[Step]:
    """Return the steps of a decision that cancels a run's commands."""
    query = INGEST["cancel_commands"]
    step = statement(f"{session}.cancel", query, lambda world: {"execution_ids": [world["execution_id"]]})

    async def append(conn: Conn, world: World) -> int:
        ended = [row["command_id"] for row in world[f"{session}.cancel"] if row["was"] == "pending"]
        inputs = [
            event(world["execution_id"], "command.cancelled", "s", command_id=id_, dedup_key=f"done:{id_}")
            for id_ in ended
        ]
        return len(await event_log.append(conn, SHARD, inputs))

    return [begin(session), step, Step(f"{session}.append", append), commit(session)]


async def _commands(conn: Conn, count: int, **columns: Any) -> World:
    await reset(conn)
    await lease(conn, "meta", owner="m", epoch=1, lease_s=LEASE_S)
    execution_id = await execution_in(conn, SHARD)
    return {"execution_id": execution_id, "commands": await queue(conn, execution_id, count, **columns)}


async def claimed(conn: Conn) -> World:
    """One command on lease under the token 77."""
    return await _commands(conn, 1, status="claimed", claim_token=77, worker_id="w", lease_s=LEASE_S)


async def expired(conn: Conn) -> World:
    """The same with a lease that has run out."""
    return await _commands(conn, 1, status="claimed", claim_token=77, worker_id="w", lease_s=-1)


async def at_its_last(conn: Conn) -> World:
    """The same once more, and the lease was lost twice before."""
    columns = {"status": "claimed", "claim_token": 77, "worker_id": "w", "lease_s": -1, "crash_count": 2}
    return await _commands(conn, 1, **columns)


async def pending(conn: Conn) -> World:
    """Four commands that wait."""
    return await _commands(conn, 4, status="pending")


async def one_end(conn: Conn, outcome: Outcome) -> tuple[str, list[str]]:
    """Return the command's status and its terminal events; there is one exactly if the status is an end."""
    errors = [answer for answer in outcome.answers.values() if isinstance(answer, Exception)]
    assert errors == [], errors
    (found,) = await rows(conn, "SELECT status, claim_token FROM noetl.command")
    ends = [kind for kind in await events_of(conn, outcome.world["execution_id"]) if kind in TERMINAL]
    wanted = [f"command.{found['status']}"] if found["status"] in ("completed", "failed", "cancelled") else []
    assert ends == wanted, (found, ends)
    return found["status"], ends


def _accepted(outcome: Outcome, *sessions: str) -> list[str]:
    return [name for name in sessions if outcome.answers[f"{name}.finish"] == "accepted"]


async def finished_or_reissued(conn: Conn, outcome: Outcome) -> None:
    status, _ends = await one_end(conn, outcome)
    reaped = outcome.answers["r.lock"]
    accepted = _accepted(outcome, "w")
    (lost,) = [row["lost"] for row in outcome.answers["h.beat"]]
    assert status == ("completed" if accepted else "pending"), (status, accepted)
    assert bool(reaped) == (status == "pending"), "taken back and finished at once"
    if not lost and not accepted:
        assert outcome.before("h.beat", "r.commit"), "a lease that was taken away was renewed"


async def accepted_once(conn: Conn, outcome: Outcome) -> None:
    status, _ends = await one_end(conn, outcome)
    accepted = _accepted(outcome, "a", "b")
    assert status == "completed" and len(accepted) == 1
    (other,) = {"a", "b"} - set(accepted)
    assert outcome.answers[f"{other}.finish"] == "duplicate"


async def the_last_attempt_counts(conn: Conn, outcome: Outcome) -> None:
    status, _ends = await one_end(conn, outcome)
    assert status == "completed" and _accepted(outcome, "a", "b") == ["b"]
    assert outcome.answers["a.finish"] in ("fenced", "duplicate")


async def ended_once(conn: Conn, outcome: Outcome) -> None:
    status, _ends = await one_end(conn, outcome)
    accepted, judged = _accepted(outcome, "w"), outcome.answers["r.judge"]
    assert len(accepted) + judged == 1, "reported and given up"
    assert status == ("completed" if accepted else "failed")


async def ended_or_cancelled_once(conn: Conn, outcome: Outcome) -> None:
    status, _ends = await one_end(conn, outcome)
    assert status == ("completed" if _accepted(outcome, "w") else "cancelled")
    if status == "cancelled":
        assert outcome.answers["r.lock"], "a command on lease was ended although nobody took it back"


async def shared_out(conn: Conn, outcome: Outcome) -> None:
    taken = [row["command_id"] for name, answer in outcome.answers.items() if ".claim" in name for row in answer]
    assert len(taken) == len(set(taken)), "a command was given to two workers"
    found = await rows(conn, "SELECT worker_id, claim_token FROM noetl.command WHERE status = 'claimed'")
    assert len(found) == len(taken) and len({row["claim_token"] for row in found}) == len(taken)
    # A row that another claim holds is passed over: who comes last may find nothing, but never all go without.
    assert len(taken) >= 2


async def cancelled_or_told(conn: Conn, outcome: Outcome) -> None:
    taken = {row["command_id"] for name, answer in outcome.answers.items() if ".claim" in name for row in answer}
    found = await rows(conn, "SELECT command_id, status, cancel_requested FROM noetl.command")
    for row in found:
        assert row["cancel_requested"], "a command of a cancelled run is not told"
        assert row["status"] == ("claimed" if row["command_id"] in taken else "cancelled"), row
    was = {row["command_id"]: row["was"] for row in outcome.answers["c.cancel"]}
    assert {id_ for id_, status in was.items() if status == "claimed"} == taken


def _three(first: Sequence[Step], second: Sequence[Step], third: Sequence[Step]) -> dict[str, Sequence[Step]]:
    return {steps[0].name.partition(".")[0]: steps for steps in (first, second, third)}


SPECS = (
    Spec(
        name="a heartbeat and a report meet the reaper",
        setup=expired,
        sessions=_three([beat("h.beat", 77)], finish("w", 77), reap("r")),
        check=finished_or_reissued,
    ),
    Spec(
        name="one report arrives twice",
        setup=claimed,
        sessions={"a": finish("a", 77), "b": finish("b", 77)},
        check=accepted_once,
    ),
    Spec(
        name="two attempts report",
        setup=claimed,
        sessions={"a": finish("a", 76), "b": finish("b", 77)},
        check=the_last_attempt_counts,
    ),
    Spec(
        name="a command is reported while it is given up as poison",
        setup=at_its_last,
        sessions={"w": finish("w", 77), "r": reap("r")},
        check=ended_once,
    ),
    Spec(
        name="a command is reported, cancelled and reaped",
        setup=expired,
        sessions=_three(cancel("c"), finish("w", 77), reap("r")),
        check=ended_or_cancelled_once,
    ),
    Spec(
        name="three workers claim",
        setup=pending,
        sessions=_three(
            [begin("a"), claim("a.claim", 2), commit("a")],
            [begin("b"), claim("b.claim", 2), commit("b")],
            [claim("d.claim", 2)],
        ),
        check=shared_out,
    ),
    Spec(
        name="a run is cancelled while its commands are claimed",
        setup=pending,
        sessions=_three(cancel("c"), [begin("a"), claim("a.claim", 2), commit("a")], [claim("b.claim", 1)]),
        check=cancelled_or_told,
    ),
)
