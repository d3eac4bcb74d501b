"""The races of shard ownership and routing: the statements of the product, by hand, in every order."""

from typing import Any

from noetl_common import event_log
from noetl_common.cluster import LEADER_ROLE, SHARDED_ROLES
from noetl_common.core.shard import last_id
from noetl_common.db import Conn, json_text
from noetl_common.session_lock import runtime_id_of
from noetl_common.sql import load_queries
from tests.histories import report
from tests.isolation import Outcome, Spec, Step, World, begin, commit, statement
from tests.race_world import SHARD, consequences, events_of, execution_in, lease, only, reset, rows

COMMON = load_queries("noetl_common")
INGEST = load_queries("services.ingest")
META = load_queries("services.meta")
COMPUTE = load_queries("services.compute")
LEASE_S = 60.0


def assign(name: str, role: str, *, owner: str, epoch: int = 1, leader: tuple[str, int] = ("m", 1)) -> Step:
    """Return the step in which a leader gives the shard, last seen at `epoch`, to an owner."""
    args = {
        "shard_id": SHARD,
        "epoch": epoch,
        "owner": owner,
        "lease_s": LEASE_S,
        "dead": [],
        "leader": leader[0],
        "leader_epoch": leader[1],
    }
    return statement(name, META[f"assign_{role}"], lambda _world: args)


def renew(name: str, instance: str) -> Step:
    """Return the step in which an ingest renews its leases."""
    args = {
        "runtime_id": runtime_id_of("ingest", instance),
        "role": "ingest",
        "instance": instance,
        "uri": "",
        "lease_s": LEASE_S,
        "holds_lock": False,
    }
    return statement(name, COMMON["renew_leases"], lambda _world: args)


def look(name: str, instance: str) -> Step:
    """Return the step in which a meta bids for the leadership."""
    args = {
        "runtime_id": runtime_id_of("meta", instance),
        "instance": instance,
        "lease_s": LEASE_S,
        "silent_s": LEASE_S,
        "holds_lock": False,
        "dead": [],
        "roles": [*SHARDED_ROLES, LEADER_ROLE],
    }
    return statement(name, META["look"], lambda _world: args)


def move(name: str, *, epoch: int, old: str = "") -> Step:
    """Return the step that moves the routing cursor over both inputs; `old` names the step that read where it was."""

    def args(world: World) -> dict[str, int]:
        seq = world[old][0]["seq"] if old else 0
        return {"shard_id": SHARD, "old_seq": seq, "new_seq": max(2, seq + 1), "epoch": epoch}

    return statement(name, INGEST["move_cursor"], args)


def write(name: str, *, moved: str) -> Step:
    """Return the step that writes what routing drew from both inputs, if the cursor was moved."""

    async def run(conn: Conn, world: World) -> int:
        if not isinstance(world[moved], list) or not world[moved]:
            return 0
        args = {"shard_id": SHARD, "events": consequences(world["execution_id"])}
        return (await conn.execute(INGEST["insert_consequences"], args)).rowcount

    return Step(name, run)


async def two_inputs(conn: Conn) -> World:
    """Two reports that nobody has routed, in a shard whose owner's lease has run out; m leads."""
    await reset(conn)
    execution_id = await execution_in(conn, SHARD)
    async with conn.transaction():
        await event_log.append(conn, SHARD, [report(execution_id, 1), report(execution_id, 2)])
    for role in SHARDED_ROLES:
        await lease(conn, role, owner="a", epoch=1, lease_s=-1)
    await lease(conn, "meta", owner="m", epoch=1, lease_s=LEASE_S)
    return {"execution_id": execution_id}


async def routed_once(conn: Conn, outcome: Outcome) -> None:
    written = await events_of(conn, outcome.world["execution_id"], consequences_only=True)
    assert written == ["command.issued", "loop.done"], written
    (cursor,) = await rows(conn, "SELECT seq, lease_epoch FROM noetl.shard_cursor WHERE shard_id = %s", SHARD)
    assert cursor == {"seq": 2, "lease_epoch": 2}, cursor
    moved = [bool(only(outcome.answers[name])) for name in ("a.move", "b.move")]
    assert moved in ([True, False], [False, True]), "exactly one of both routed the inputs"
    if outcome.before("b.assign", "a.move"):
        assert not outcome.answers["a.move"], "the zombie moved a cursor that is not its own any more"
    if "b.assign" in outcome.waited:
        assert outcome.answers["a.move"], "a takeover waits for nothing but the old owner's transaction"


ZOMBIE = Spec(
    name="an owner routes while its shard is taken over",
    setup=two_inputs,
    sessions={
        "a": [begin("a"), move("a.move", epoch=1), write("a.write", moved="a.move"), commit("a")],
        "b": [
            assign("b.assign", "ingest", owner="b"),
            statement("b.read", INGEST["read_cursor"], lambda _world: {"shard_id": SHARD}),
            begin("b"),
            # A new owner that finds everything routed has nothing to move: old = new is no move.
            statement(
                "b.move",
                INGEST["move_cursor"],
                lambda world: {"shard_id": SHARD, "old_seq": 0, "new_seq": 2, "epoch": 2},
            ),
            write("b.write", moved="b.move"),
            commit("b"),
        ],
    },
    check=routed_once,
)

FAN_IN = Spec(
    name="two owners close the same loop",
    setup=two_inputs,
    sessions={
        "a": [begin("a"), move("a.move", epoch=1), write("a.write", moved="a.move"), commit("a")],
        "l": [assign("b.assign", "ingest", owner="b")],
        "b": [begin("b"), move("b.move", epoch=2), write("b.write", moved="b.move"), commit("b")],
    },
    check=lambda conn, outcome: closed_at_most_once(conn, outcome),
)


async def closed_at_most_once(conn: Conn, outcome: Outcome) -> None:
    written = await events_of(conn, outcome.world["execution_id"], consequences_only=True)
    moved = [name for name in ("a.move", "b.move") if only(outcome.answers[name])]
    assert written == (["command.issued", "loop.done"] if moved else []) and len(moved) <= 1, (written, moved)
    if not moved:
        assert outcome.before("b.move", "b.assign") and outcome.before("b.assign", "a.move")


async def fenced_alike(conn: Conn, outcome: Outcome) -> None:
    """The lease and the fence say the same epoch, which is one more for each assignment that succeeded."""
    won = [name for name in outcome.ended if ".assign" in name and only(outcome.answers[name])]
    (found,) = await rows(
        conn,
        "SELECT s.owner_instance AS owner, s.epoch, c.lease_epoch FROM noetl.execution_shard s"
        " JOIN noetl.shard_cursor c USING (shard_id) WHERE s.role = 'ingest' AND s.shard_id = %s",
        SHARD,
    )
    assert found["epoch"] == found["lease_epoch"] == 1 + len(won), (found, won)
    assert len(won) <= 1, "two gave away the same epoch"
    assert found["owner"] == (won[0].partition(".")[0] if won else outcome.world.get("owner", found["owner"])), found


async def expired_under_an_old_leader(conn: Conn) -> World:
    world = await two_inputs(conn)
    await lease(conn, "meta", owner="m", epoch=1, lease_s=-1)
    return {**world, "owner": "a"}


async def deposed(conn: Conn, outcome: Outcome) -> None:
    await fenced_alike(conn, outcome)
    if outcome.before("n.look", "x.assign"):
        assert not only(outcome.answers["x.assign"]), "a leader that was replaced gave a shard away"
    assert outcome.answers["n.look"][0]["epoch"] == 2


TAKEOVERS = Spec(
    name="an old and a new leader give the same shard away, and its owner comes back",
    setup=expired_under_an_old_leader,
    sessions={
        "m": [assign("x.assign", "ingest", owner="x"), assign("x.assign.again", "ingest", owner="x")],
        "n": [look("n.look", "n"), assign("y.assign", "ingest", owner="y", leader=("n", 2))],
        "a": [renew("a.renew", "a"), renew("a.renew.again", "a")],
    },
    check=deposed,
)


async def held(conn: Conn) -> World:
    world = await two_inputs(conn)
    await lease(conn, "ingest", owner="a", epoch=1, lease_s=LEASE_S)
    return world


async def given_on(conn: Conn, outcome: Outcome) -> None:
    (found,) = await rows(
        conn, "SELECT owner_instance AS owner FROM noetl.execution_shard WHERE role = 'ingest' AND shard_id = %s", SHARD
    )
    await fenced_alike(conn, Outcome(world={"owner": found["owner"]}, answers=outcome.answers, ended=outcome.ended))
    won = [name for name in ("b.assign", "b.assign.again") if only(outcome.answers[name])]
    if not won:
        assert outcome.before("b.assign.again", "a.release"), "what was given back was not taken up"
    for name in ("b.assign", "b.assign.again"):
        if outcome.before(name, "a.release") and name not in outcome.waited:
            assert name not in won, "a living owner was robbed"
    if won and outcome.before(won[0], "a.renew"):
        assert [SHARD, 2] not in outcome.answers["a.renew"][0]["shards"], "the old owner took it for its own"


HANDOVER = Spec(
    name="an owner gives a shard back while it is given on",
    setup=held,
    sessions={
        "a": [
            statement(
                "a.release",
                COMMON["release_shards"],
                lambda _world: {"role": "ingest", "instance": "a", "shards": [SHARD]},
            ),
            renew("a.renew", "a"),
        ],
        "m": [assign("b.assign", "ingest", owner="b"), assign("b.assign.again", "ingest", owner="b")],
        "b": [renew("b.renew", "b")],
    },
    check=given_on,
)


async def one_leads(conn: Conn, outcome: Outcome) -> None:
    epochs: dict[int, set[str]] = {}
    for name, answer in outcome.answers.items():
        if ".look" in name and answer[0]["epoch"] is not None:
            epochs.setdefault(answer[0]["epoch"], set()).add(name.partition(".")[0])
    assert all(len(names) == 1 for names in epochs.values()), epochs
    assert epochs, "nobody led"


async def without_leader(conn: Conn) -> World:
    await reset(conn)
    return {}


LEADERS = Spec(
    name="three bid for the leadership, and one resigns",
    setup=without_leader,
    sessions={
        "m": [look("m.look", "m"), statement("m.resign", META["resign"], lambda _world: {"instance": "m"})],
        "n": [look("n.look", "n"), look("n.look.again", "n")],
        "o": [look("o.look", "o"), look("o.look.again", "o")],
    },
    check=one_leads,
)


def advance(name: str, *, epoch: int) -> Step:
    """Return the step that moves the projection over both inputs."""
    move = {"shard_id": SHARD, "epoch": epoch, "old": 0, "new": last_id(SHARD, 2)}
    args = {"moves": json_text([move]), "runs": "[]"}
    return statement(name, COMPUTE["save_projection"], lambda _world: args)


async def projected_once(conn: Conn, outcome: Outcome) -> None:
    moved = [name for name in ("a.advance", "b.advance") if outcome.answers[name]]
    assert len(moved) <= 1, "both owners projected the same events"
    if outcome.before("b.assign", "a.advance"):
        assert "a.advance" not in moved
    (found,) = await rows(
        conn, "SELECT last_projected_event_id AS id FROM noetl.projection_checkpoint WHERE shard_id = %s", SHARD
    )
    assert found["id"] == (last_id(SHARD, 2) if moved else 0)


PROJECTION = Spec(
    name="an owner projects while its shard is taken over",
    setup=two_inputs,
    sessions={
        "a": [begin("a"), advance("a.advance", epoch=1), commit("a")],
        "l": [assign("b.assign", "compute", owner="b")],
        "b": [begin("b"), advance("b.advance", epoch=2), commit("b")],
    },
    check=projected_once,
)


def fire(session: str) -> list[Step]:
    """Return the steps in which an owner, by its own belief, fires what is due."""
    from services.ingest.decisions import fire_timers

    async def run(conn: Conn, _world: World) -> int:
        return len(await fire_timers(conn, SHARD))

    return [begin(session), Step(f"{session}.fire", run), commit(session)]


async def a_due_timer(conn: Conn) -> World:
    world = await two_inputs(conn)
    await conn.execute(
        "INSERT INTO noetl.timer (execution_id, timer_id, shard_id, due_at, kind, cause_event_id)"
        " VALUES (%s, 5, %s, clock_timestamp() - interval '1 s', 'grace', 1)",
        [world["execution_id"], SHARD],
    )
    return world


async def fired_once(conn: Conn, outcome: Outcome) -> None:
    fired = [kind for kind in await events_of(conn, outcome.world["execution_id"]) if kind == "timer.fired"]
    assert len(fired) == outcome.answers["a.fire"] + outcome.answers["b.fire"] <= 1
    dropped = outcome.answers["c.drop"]
    assert len(fired) + dropped == 1, "it fired or was dropped, and not both"
    assert await rows(conn, "SELECT 1 FROM noetl.timer") == []


TIMERS = Spec(
    name="two owners fire the same timer while its run ends",
    setup=a_due_timer,
    sessions={
        "a": fire("a"),
        "b": fire("b"),
        "c": [statement("c.drop", INGEST["drop_timers"], lambda world: {"execution_ids": [world["execution_id"]]})],
    },
    check=fired_once,
)


async def standing_kept(conn: Conn, outcome: Outcome) -> None:
    (found,) = await rows(conn, "SELECT status FROM noetl.runtime WHERE name = 'a'")
    assert found == {"status": "draining"}
    for name in ("a.renew", "a.renew.again"):
        is_told = outcome.answers[name][0]["status"] == "draining"
        assert is_told == outcome.before("o.drain", name)


async def a_replica(conn: Conn) -> World:
    world = await held(conn)
    await renew("a.register", "a").run(conn, {})
    return world


STANDING = Spec(
    name="a replica renews its leases while an operator drains it",
    setup=a_replica,
    sessions={
        "a": [renew("a.renew", "a"), renew("a.renew.again", "a")],
        "o": [statement("o.drain", INGEST["set_standing"], lambda _world: {"instance": "a", "standing": "draining"})],
    },
    check=standing_kept,
)


def append(session: str, shard_id: int, number: int) -> Step:
    """Return the step that appends a report to a shard, in the transaction under way."""

    async def run(conn: Conn, world: World) -> Any:
        execution_id = world["executions"][shard_id]
        return await event_log.append(conn, shard_id, [report(execution_id, number)])

    return Step(f"{session}.append.{shard_id}", run)


def drain(name: str) -> Step:
    """Return the step in which a reader takes everything beyond where it stands, and then stands there."""

    async def run(conn: Conn, world: World) -> list[str]:
        seen = world["seen"]
        found = await rows(
            conn,
            "SELECT event_id, dedup_key FROM noetl.event WHERE shard_id = %s AND event_id > %s ORDER BY event_id",
            SHARD,
            max(seen, default=0),
        )
        seen.update({row["event_id"]: row["dedup_key"] for row in found})
        return [row["dedup_key"] for row in found]

    return Step(name, run)


async def empty_shards(conn: Conn) -> World:
    await reset(conn)
    return {"executions": {shard: await execution_in(conn, shard) for shard in (SHARD, SHARD + 1)}, "seen": {}}


async def nothing_skipped(conn: Conn, outcome: Outcome) -> None:
    await drain("last").run(conn, outcome.world)
    assert sorted(outcome.world["seen"].values()) == ["done:1", "done:2"], "a reader skipped an event for ever"
    ids = sorted(outcome.world["seen"])
    assert ids[1] - ids[0] == 1 << 15, "numbers have a gap"


APPENDS = Spec(
    name="two append to a shard that a third one reads",
    setup=empty_shards,
    sessions={
        "a": [begin("a"), append("a", SHARD, 1), commit("a")],
        "b": [begin("b"), append("b", SHARD, 2), commit("b")],
        "r": [drain("r.first"), drain("r.second"), drain("r.third")],
    },
    check=nothing_skipped,
)


async def all_appended(conn: Conn, outcome: Outcome) -> None:
    errors = [answer for answer in outcome.answers.values() if isinstance(answer, Exception)]
    assert errors == [], errors
    heads = await rows(conn, "SELECT seq FROM noetl.shard_head WHERE seq > 0")
    assert heads == [{"seq": 2}, {"seq": 2}], heads


ACROSS = Spec(
    name="two append to the same two shards",
    setup=empty_shards,
    sessions={
        name: [begin(name), append(name, SHARD, number), append(name, SHARD + 1, number), commit(name)]
        for number, name in enumerate(("a", "b"))
    },
    check=all_appended,
)

SPECS = (ZOMBIE, FAN_IN, TAKEOVERS, HANDOVER, LEADERS, PROJECTION, TIMERS, STANDING, APPENDS, ACROSS)
