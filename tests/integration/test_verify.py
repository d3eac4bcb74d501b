"""`noetl verify` passes a system that is whole, at rest or at work, and names exactly what is broken in another."""

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from noetl_cli.main import app
from noetl_common.core.shard import ORD_MAX, ord_in
from noetl_common.db import Pool
from noetl_common.errors import NotFound
from noetl_common.verify.report import CHECKS, LAYERS, Finding, settled
from noetl_common.verify.run import Asked, verify
from tests.builders import disk_store
from tests.histories import rows
from tests.servers import Postgres, clone, drop
from tests.verifying import Made, ask, copy_of, live, make_system, verified

ROW = "SELECT * FROM noetl.result_ref WHERE execution_id = %s AND step = %s ORDER BY ref_id LIMIT 1"
EVENT = "SELECT * FROM noetl.event WHERE execution_id = %s AND event_type = %s ORDER BY event_id LIMIT 1"


@pytest.fixture(scope="module")
def whole(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    url = clone(postgres)
    yield asyncio.run(make_system(url, tmp_path_factory.mktemp("whole") / "results"))
    drop(postgres, url)


@pytest.fixture
def made(postgres: Postgres, whole: Made, tmp_path: Path) -> Iterator[Made]:
    """A copy of the whole system, to be broken."""
    name = str(psycopg.conninfo.conninfo_to_dict(whole.url)["dbname"])
    url = clone(Postgres(url=postgres.url, template=name))
    yield copy_of(whole, url, tmp_path / "results")
    drop(postgres, url)


def file_of(made: Made, row: dict[str, Any]) -> Path:
    return made.results / str(row["physical_uri"]).partition("://")[2]


# Each breaks one thing of the run it is given and returns what the finding must say, at least.
Found = dict[str, Any]
Break = Callable[[Made, int], Found]


def lose_payload(made: Made, run: int) -> Found:
    (row,) = ask(made, ROW, run, "many")
    file_of(made, row).unlink()
    return {"check": "payloads.missing", "reference": f"{row['ref']} at {row['physical_uri']}"}


def lose_table(made: Made, run: int) -> Found:
    (row,) = ask(made, ROW, run, "table")
    assert row["content_type"] == "application/vnd.apache.parquet"
    file_of(made, row).unlink()
    return {"check": "payloads.missing", "reference": f"{row['ref']} at {row['physical_uri']}"}


def change_payload(made: Made, run: int) -> Found:
    (row,) = ask(made, ROW, run, "many")
    path = file_of(made, row)
    path.write_bytes(path.read_bytes()[::-1])
    return {"check": "payloads.digest", "reference": f"{row['ref']} at {row['physical_uri']}"}


def lengthen_payload(made: Made, run: int) -> Found:
    (row,) = ask(made, ROW, run, "fin")
    change = "UPDATE noetl.result_ref SET inline_payload = inline_payload || ' '::bytea WHERE ref_id = %s"
    ask(made, change, row["ref_id"])
    size = row["bytes"]
    found = {"expected": f"{size} bytes", "found": f"{size + 1} bytes"}
    return {"check": "payloads.size", "reference": row["ref"], **found}


def cut_chain(made: Made, run: int) -> Found:
    change = "UPDATE noetl.result_ref SET parent_ref_id = 12345 WHERE execution_id = %s AND parent_ref_id IS NOT NULL"
    (row,) = ask(made, change + " RETURNING ref", run)
    return {"check": "lineage.parent", "reference": row["ref"], "expected": "result 12345, which it came from"}


def close_chain(made: Made, run: int) -> Found:
    change = "UPDATE noetl.result_ref SET parent_ref_id = ref_id WHERE execution_id = %s AND parent_ref_id IS NOT NULL"
    (row,) = ask(made, change + " RETURNING ref", run)
    return {"check": "lineage.cycle", "reference": row["ref"]}


def drift_in_status(made: Made, run: int) -> Found:
    ask(made, "UPDATE noetl.execution SET status = 'FAILED' WHERE execution_id = %s", run)
    return {"check": "read_model", "expected": 'status "COMPLETED"', "found": 'status "FAILED"'}


def drift_in_step(made: Made, run: int) -> Found:
    ask(made, "UPDATE noetl.execution SET current_step = 'many' WHERE execution_id = %s", run)
    return {"check": "read_model", "expected": 'current_step "fin"', "found": 'current_step "many"'}


def drift_in_counts(made: Made, run: int) -> Found:
    change = "UPDATE noetl.execution SET progress = jsonb_set(progress, '{counts,commands_completed}', '7')"
    ask(made, change + " WHERE execution_id = %s", run)
    return {"check": "read_model", "found": "counts.commands_completed 7"}


def drift_in_result(made: Made, run: int) -> Found:
    ask(made, "UPDATE noetl.execution SET result = NULL WHERE execution_id = %s", run)
    return {"check": "read_model", "found": "result null"}


def drift_of_router(made: Made, run: int) -> Found:
    change = "UPDATE noetl.execution_state SET state = jsonb_set(state, '{visits,fin}', '9') WHERE execution_id = %s"
    ask(made, change, run)
    return {"check": "state", "expected": "visits.fin 1", "found": "visits.fin 9"}


def lose_router_state(made: Made, run: int) -> Found:
    ask(made, "DELETE FROM noetl.execution_state WHERE execution_id = %s", run)
    return {"check": "state", "found": "none"}


def drift_of_projection(made: Made, run: int) -> Found:
    change = "UPDATE noetl.projection_state SET state = jsonb_set(state, '{commands_issued}', '1')"
    ask(made, change + " WHERE execution_id = %s", run)
    return {"check": "projection", "found": "commands_issued 1"}


def leave_orphan(made: Made, run: int) -> Found:
    path = made.results / "exec" / str(run) / "many" / ("0" * 64)
    path.write_bytes(b"[]")
    uri = f"disk://exec/{run}/many/{'0' * 64}"
    return {"check": "payloads.orphan", "severity": "warning", "reference": uri}


def end_twice(made: Made, run: int) -> Found:
    (end,) = ask(made, EVENT, run, "playbook.completed")
    assert 0 < ord_in(end["event_id"]) < ORD_MAX
    ask(
        made,
        "INSERT INTO noetl.event SELECT (json_populate_record(e, %s::json)).* FROM noetl.event e"
        " WHERE execution_id = %s AND event_id = %s",
        json.dumps({"event_id": end["event_id"] + 1, "dedup_key": "end:2"}),
        run,
        end["event_id"],
    )
    return {"check": "log.end", "event_id": end["event_id"] + 1, "found": "playbook.completed too"}


def lose_input(made: Made, run: int) -> Found:
    """Take away the report of an item that nothing was drawn from."""
    query = (
        "SELECT e.event_id, e.shard_id FROM noetl.event e WHERE e.execution_id = %s AND e.step = 'many'"
        " AND e.event_type = 'command.completed' AND NOT EXISTS (SELECT FROM noetl.event n"
        " WHERE n.shard_id = e.shard_id AND n.event_id = e.event_id + 1) ORDER BY e.event_id LIMIT 1"
    )
    (event,) = ask(made, query, run)
    ask(made, "DELETE FROM noetl.event WHERE execution_id = %s AND event_id = %s", run, event["event_id"])
    return {"check": "log.sequence", "shard_id": event["shard_id"], "execution_id": 0}


def lose_last_input(made: Made, run: int) -> Found:
    (head,) = ask(made, "UPDATE noetl.shard_head SET seq = seq + 1 WHERE shard_id = 3 RETURNING seq")
    found = f"the last one is {head['seq'] - 1}"
    return {"check": "log.sequence", "shard_id": 3, "execution_id": 0, "found": found}


def lose_consequence(made: Made, run: int) -> Found:
    (event,) = ask(made, "SELECT * FROM noetl.event WHERE execution_id = %s AND event_type = 'step.enter'"
                         " AND step = 'fin'", run)  # fmt: skip
    ask(made, "DELETE FROM noetl.event WHERE execution_id = %s AND event_id = %s", run, event["event_id"])
    found = f"consequence {ord_in(event['event_id']) + 1}"
    return {"check": "log.consequences", "event_id": event["event_id"] + 1, "found": found}


def lose_end_of_command(made: Made, run: int) -> Found:
    """Make the report of an item something else, so that the numbering stays whole."""
    change = (
        "UPDATE noetl.event SET event_type = 'finalize.requested', command_id = NULL, dedup_key = NULL, result = NULL"
        " WHERE execution_id = %s AND event_type = 'command.completed' AND step = 'many' AND iter_index = 3"
    )
    (command,) = ask(made, EVENT.replace("ORDER", "AND step = 'many' AND iter_index = 3 ORDER"), run, "command.issued")
    ask(made, change, run)
    name = f"command {command['command_id']} of step 'many'"
    return {"check": "commands.ended", "expected": f"{name}: an event that ends it, as its row is completed"}


def claim_again(made: Made, run: int) -> Found:
    change = "UPDATE noetl.command SET status = 'claimed', lease_until = now() WHERE execution_id = %s AND step = 'fin'"
    (row,) = ask(made, change + " RETURNING command_id", run)
    name = f"command {row['command_id']} of step 'fin'"
    found = {"expected": f"{name}: status completed", "found": f"{name}: status claimed"}
    return {"check": "commands.row", "expected": found["expected"], "found": "status claimed"}


def lose_command(made: Made, run: int) -> Found:
    ask(made, "DELETE FROM noetl.command WHERE execution_id = %s AND step = 'fin'", run)
    return {"check": "commands.issued", "found": "none"}


def lose_loop_done(made: Made, run: int) -> Found:
    change = "UPDATE noetl.event SET event_type = 'finalize.requested' WHERE execution_id = %s AND step = 'many'"
    (event,) = ask(made, EVENT.replace("ORDER", "AND step = 'many' ORDER"), run, "loop.started")
    ask(made, change + " AND event_type = 'loop.done'", run)
    return {"check": "loops.done", "event_id": event["event_id"]}


def leave_timer(made: Made, run: int) -> Found:
    ask(made, "INSERT INTO noetl.timer VALUES (%s, 77, 3, now() + interval '1 h', 'retry', 5)", run)
    return {"check": "timers.left", "found": "timer 77 (retry)"}


def leave_place(made: Made, run: int) -> Found:
    ask(made, "INSERT INTO noetl.concurrency (execution_id, group_id, key, run_limit) VALUES (%s, 1, 'k', 2)", run)
    return {"check": "places.held", "expected": "group of key 'k': no place, as the run is over"}


def lose_result(made: Made, run: int) -> Found:
    (row,) = ask(made, "DELETE FROM noetl.result_ref WHERE execution_id = %s AND step = 'fin' RETURNING ref", run)
    return {"check": "references.row", "reference": row["ref"]}


def rename_result(made: Made, run: int) -> Found:
    change = "UPDATE noetl.result_ref SET sha256 = repeat('0', 64) WHERE execution_id = %s AND step = 'fin'"
    (row,) = ask(made, change + " RETURNING ref", run)
    return {"check": "references.agree", "reference": row["ref"]}


def lose_run(made: Made, run: int) -> Found:
    ask(made, "DELETE FROM noetl.execution WHERE execution_id = %s", run)
    return {"check": "log.runs", "expected": "a row in noetl.execution"}


def route_too_far(made: Made, run: int) -> Found:
    (row,) = ask(made, "UPDATE noetl.shard_cursor SET seq = seq + 5 WHERE shard_id = 3 RETURNING seq")
    return {"check": "log.cursors", "shard_id": 3, "execution_id": 0, "found": str(row["seq"])}


def miscount_manifest(made: Made, run: int) -> Found:
    change = "UPDATE noetl.manifest SET events = events + 1 WHERE execution_id = %s RETURNING events"
    (row,) = ask(made, change, run)
    found = {"expected": f"events {row['events'] - 1}", "found": f"events {row['events']}"}
    return {"check": "manifests.counts", **found}


def change_digest(made: Made, run: int) -> Found:
    ask(made, "UPDATE noetl.manifest SET trace_digest = repeat('0', 64) WHERE execution_id = %s", run)
    return {"check": "manifests.digest", "found": "0" * 64}


def lose_manifest(made: Made, run: int) -> Found:
    ask(made, "DELETE FROM noetl.manifest WHERE execution_id = %s", run)
    return {"check": "manifests.row", "found": "none"}


BREAKS: list[tuple[Break, str]] = [
    *((one, "completed") for one in (lose_payload, lose_table, change_payload, lengthen_payload, cut_chain)),
    *((one, "completed") for one in (close_chain, drift_in_status, drift_in_step, drift_in_counts, drift_in_result)),
    *((one, "completed") for one in (drift_of_router, lose_router_state, drift_of_projection, leave_orphan)),
    *((one, "completed") for one in (end_twice, lose_input, lose_last_input, lose_consequence, lose_end_of_command)),
    *((one, "completed") for one in (claim_again, lose_command, lose_loop_done, leave_timer, leave_place)),
    (lose_result, "completed"),
    *((one, "completed") for one in (rename_result, lose_run, route_too_far)),
    *((one, "folded") for one in (miscount_manifest, lose_manifest, lose_payload)),
    *((one, "dropped") for one in (miscount_manifest, change_digest, drift_in_status, drift_in_counts)),
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("breaks", "which"), BREAKS, ids=[f"{one.__name__} {which}" for one, which in BREAKS])
def test_what_is_broken_is_named_and_nothing_else(made: Made, breaks: Break, which: str) -> None:
    expected = {"execution_id": made.runs[which], **breaks(made, made.runs[which])}
    report = verified(made)
    assert [one.check for one in report.findings] == [expected["check"]], report.findings
    found = report.findings[0]
    assert {name: getattr(found, name) for name in expected} == expected
    assert report.is_clean == (expected.get("severity") == "warning")
    assert report.counts == {found.check: 1}


def test_a_payload_that_has_expired_is_not_missed(made: Made) -> None:
    (row,) = ask(made, ROW, made.runs["completed"], "many")
    file_of(made, row).unlink()
    ask(made, "UPDATE noetl.result_ref SET expires_at = now() WHERE ref_id = %s", row["ref_id"])
    assert verified(made).findings == []


@pytest.mark.timeout(300)
def test_a_system_at_rest_is_whole_with_runs_in_the_log_in_manifests_and_gone(whole: Made) -> None:
    report = verified(whole)
    assert report.findings == [] and report.is_clean
    looked = report.looked
    assert looked.shards == 16 and looked.executions == len(ask(whole, "SELECT 1 FROM noetl.execution"))
    (counted,) = ask(
        whole,
        "SELECT (SELECT count(*) FROM noetl.event) + coalesce((SELECT sum(m.events) FROM noetl.manifest m"
        " WHERE NOT EXISTS (SELECT FROM noetl.event e WHERE e.execution_id = m.execution_id)), 0) AS events,"
        " (SELECT count(*) FROM noetl.manifest) AS manifests, (SELECT count(*) FROM noetl.result_ref) AS results",
    )
    assert (looked.events, looked.manifests) == (counted["events"], counted["manifests"])
    assert looked.payloads == counted["results"] and looked.payload_bytes > 100_000
    assert not ask(whole, "SELECT 1 FROM noetl.event WHERE execution_id = %s", whole.runs["dropped"])
    assert ask(whole, "SELECT 1 FROM noetl.event WHERE execution_id = %s", whole.runs["folded"])


def test_one_run_is_verified_alone(made: Made) -> None:
    drift_in_status(made, made.runs["completed"])
    assert verified(made, execution_id=made.runs["failed"]).is_clean
    report = verified(made, execution_id=made.runs["completed"])
    assert report.counts == {"read_model": 1} and report.looked.executions == 1
    with pytest.raises(NotFound, match="found none with the id 7"):
        verified(made, execution_id=7)


def test_only_as_many_payloads_are_read_as_wanted_and_none_that_are_too_large(whole: Made) -> None:
    assert verified(whole, sample=5).looked.payloads == 5
    report = verified(whole, payload_bytes_max=9_000)
    assert report.looked.payloads_skipped >= 13 and report.is_clean


@pytest.mark.timeout(300)
async def test_a_system_at_work_is_whole_at_every_moment(dsn: str, pool: Pool, tmp_path: Path) -> None:
    busy = "SELECT 1 FROM noetl.execution WHERE status = 'RUNNING' LIMIT 1"
    async with AsyncExitStack() as stack:
        system = await live(stack, dsn, tmp_path)
        for path in ("verify/wide", "verify/mixed", "verify/mixed"):
            await system.execute(path)
        while_busy = 0
        while await rows(pool, busy):
            report = await verify(dsn, disk_store(tmp_path), Asked(sample=None))
            assert report.findings == []
            while_busy += report.looked.events > 0
        await system.ended()
    assert while_busy >= 2
    report = await verify(dsn, disk_store(tmp_path), Asked(sample=None))
    assert report.findings == [] and report.looked.events > 6_000


def test_the_command_ends_with_0_1_or_2_and_says_why(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", made.url)
    monkeypatch.setenv("NOETL_STORE_DIR", str(made.results))
    run = CliRunner().invoke
    answer = run(app, ["verify", "--sample", "all", "--json"])
    assert answer.exit_code == 0 and json.loads(answer.stdout)["clean"] is True
    drift_in_status(made, made.runs["completed"])
    answer = run(app, ["verify"])
    assert answer.exit_code == 1
    assert str(made.runs["completed"]) in answer.stdout and 'status "FAILED"' in answer.stdout
    assert "1 violation\n" in answer.stderr
    document = json.loads(run(app, ["verify", "-o", "json"]).stdout)
    assert document["counts"] == {"read_model": 1}
    assert document["findings"][0]["execution_id"] == str(made.runs["completed"])
    assert run(app, ["verify", "--execution", "7"]).exit_code == 2
    assert run(app, ["verify", "--sample", "few"]).exit_code == 2
    answer = run(app, ["verify", "--database-url", "postgresql://nobody@127.0.0.1:1/none"])
    assert answer.exit_code == 2 and "postgres" in answer.stderr
    shutil.rmtree(made.results)
    (made.results).write_text("no folder")
    assert run(app, ["verify", "--sample", "all"]).exit_code == 1


def test_of_one_run_only_the_lowest_layer_stands_and_a_hole_takes_its_shard_along() -> None:
    def found(check: str, run: int, shard_id: int = 1) -> Finding:
        return Finding(check=check, expected="", found="", execution_id=run, shard_id=shard_id)

    given = [found("read_model", 1), found("state", 1), found("payloads.size", 1), found("read_model", 2)]
    assert [(one.check, one.execution_id, one.also) for one in settled(given)] == [
        ("state", 1, ("read_model",)),
        ("payloads.size", 1, ()),
        ("read_model", 2, ()),
    ]
    hole = found("log.sequence", 0)
    assert [(one.check, one.also) for one in settled([*given, hole, found("state", 3, 2)])] == [
        ("payloads.size", ()),
        ("log.sequence", ("read_model of 1", "state of 1", "read_model of 2")),
        ("state", ()),
    ]
    assert LAYERS.keys() <= CHECKS.keys()
