"""What outlives the log: results of a scope that does, payloads that a row names; and what does not: all the rest."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from noetl_cli.compaction import planned
from noetl_cli.main import app
from noetl_common.db import Pool
from noetl_common.errors import Invalid
from services.compactor.loops.collect_orphans import collect_orphans_once
from services.ingest.asgi import build_asgi
from tests.builders import disk_store
from tests.compacting import compactor_on, drop_all, fold_all, long_ago_ms, make_range, make_run
from tests.histories import execute, rows
from tests.ingesting import api_on

DAY_S = 86_400


@pytest.fixture
async def client(pool: Pool, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(build_asgi(api_on(pool, tmp_path)))
    async with httpx.AsyncClient(transport=transport, base_url="http://ingest") as opened:
        yield opened


async def put(client: httpx.AsyncClient, run_id: int, name: str, **body: Any) -> str:
    given = {"name": name, "data": {"of": name}, **body}
    answer = (await client.put(f"/api/result/{run_id}", json=given)).raise_for_status()
    return str(answer.json()["ref"])


async def resolved(client: httpx.AsyncClient, ref: str) -> tuple[int, Any]:
    answer = await client.get("/api/result/resolve", params={"ref": ref})
    return answer.status_code, answer.json().get("code") or answer.json()


async def archived(pool: Pool, tmp_path: Path) -> None:
    compactor = await compactor_on(pool, tmp_path)
    await fold_all(compactor)
    await drop_all(compactor)
    assert [row["state"] for row in await rows(pool, "SELECT state FROM noetl.compaction")] == ["dropped"]


@pytest.mark.parametrize(
    ("body", "stays"),
    [
        ({"scope": "permanent"}, True),
        ({"scope": "workflow"}, True),
        ({"scope": "execution"}, False),
        ({"scope": "step"}, False),
        ({"scope": "execution", "ttl": "400d"}, True),
        ({"scope": "permanent", "ttl": "400d"}, True),
    ],
)
async def test_a_result_stays_by_its_scope_and_time(
    pool: Pool, client: httpx.AsyncClient, tmp_path: Path, body: dict[str, Any], stays: bool
) -> None:
    await make_range(pool)
    run_id = await make_run(pool)
    ref = await put(client, run_id, "kept", **body)
    await archived(pool, tmp_path)
    assert await resolved(client, ref) == ((200, {"of": "kept"}) if stays else (410, "RESULT_ARCHIVED"))
    listed = (await client.get(f"/api/result/{run_id}/list")).json()["results"]
    assert [one["name"] for one in listed] == (["kept"] if stays else [])
    named = await client.get(f"/api/result/{run_id}/kept")
    assert named.status_code == (200 if stays else 410)


async def test_a_kept_result_is_its_row_in_every_column(pool: Pool, client: httpx.AsyncClient, tmp_path: Path) -> None:
    await make_range(pool)
    run_id = await make_run(pool)
    ref = await put(client, run_id, "kept", scope="permanent")
    found = [await rows(pool, "SELECT * FROM noetl.result_ref WHERE ref = %s", ref)]
    await archived(pool, tmp_path)
    found.append(await rows(pool, "SELECT * FROM noetl.kept_result WHERE ref = %s", ref))
    assert found[0] == found[1] and len(found[0]) == 1


async def test_a_kept_result_whose_time_is_over_goes_with_its_payload(
    pool: Pool, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    await make_range(pool)
    run_id = await make_run(pool)
    ref = await put(client, run_id, "kept", data="x" * 20_000, ttl="400d")
    await archived(pool, tmp_path)
    assert (await client.get("/api/result/resolve", params={"ref": ref})).json() == "x" * 20_000
    await execute(pool, "UPDATE noetl.kept_result SET expires_at = clock_timestamp() - interval '1 s'")
    assert await resolved(client, ref) == (410, "RESULT_ARCHIVED")
    compactor = await compactor_on(pool, tmp_path, orphan_age_hours=0.0)
    await collect_orphans_once(compactor)
    await collect_orphans_once(compactor)
    assert await rows(pool, "SELECT 1 FROM noetl.kept_result") == []
    assert await disk_store(tmp_path).list_uris("disk", "exec/") == []


@pytest.mark.parametrize("status", ["COMPLETED", "RUNNING"])
async def test_a_payload_whose_time_is_over_goes_as_soon_as_its_run_has_ended(
    pool: Pool, client: httpx.AsyncClient, tmp_path: Path, status: str
) -> None:
    await make_range(pool)
    run_id = await make_run(pool, status=status)
    for name in ("passing", "staying"):
        await put(client, run_id, name, data=name * 5_000, ttl="1h")
    await execute(pool, "UPDATE noetl.result_ref SET expires_at = clock_timestamp() WHERE step = 'passing'")
    compactor = await compactor_on(pool, tmp_path, orphan_age_hours=0.0)
    for _pass in range(2):
        await collect_orphans_once(compactor)
    left = await disk_store(tmp_path).list_uris("disk", "exec/")
    assert [uri.split("/")[-2] for uri in left] == (["passing", "staying"] if status == "RUNNING" else ["staying"])


async def test_what_needs_the_log_says_that_it_is_gone(pool: Pool, client: httpx.AsyncClient, tmp_path: Path) -> None:
    await make_range(pool)
    run_id = await make_run(pool)
    await archived(pool, tmp_path)
    for path in (f"/api/replay/state?execution_id={run_id}", f"/api/vars/{run_id}"):
        answer = await client.get(path)
        assert (answer.status_code, answer.json()["code"]) == (410, "EXECUTION_ARCHIVED"), path
    refused = await client.put(f"/api/result/{run_id}", json={"name": "late", "data": 1})
    assert refused.status_code == 410
    assert (await client.get(f"/api/executions/{run_id}/status")).json()["status"] == "COMPLETED"


async def test_an_orphan_goes_in_its_second_pass_once_it_is_old_enough(pool: Pool, tmp_path: Path) -> None:
    await make_range(pool)
    run_id = await make_run(pool)
    payloads = disk_store(tmp_path)
    await payloads.put(run_id, "s", b"x" * 10_000)
    patient = await compactor_on(pool, tmp_path, orphan_age_hours=24.0)
    for _pass in range(3):
        await collect_orphans_once(patient)
    assert len(await payloads.list_uris("disk", "exec/")) == 1
    await execute(pool, "UPDATE noetl.orphan_payload SET seen_at = seen_at - interval '25 hours'")
    await collect_orphans_once(patient)
    assert await payloads.list_uris("disk", "exec/") == []
    assert await rows(pool, "SELECT 1 FROM noetl.orphan_payload") == []


@pytest.mark.parametrize("reason", ["a row names it", "the run lives", "a run above it lives", "it has just ended"])
async def test_a_payload_that_may_still_be_named_is_no_orphan(pool: Pool, tmp_path: Path, reason: str) -> None:
    await make_range(pool)
    parent = await make_run(pool, status="RUNNING" if reason == "a run above it lives" else "COMPLETED")
    columns: dict[str, Any] = {"status": "RUNNING"} if reason == "the run lives" else {}
    columns |= {"ended_days_ago": 0.5} if reason == "it has just ended" else {}
    run_id = await make_run(pool, parent=parent, **columns)
    payloads = disk_store(tmp_path)
    stored = await payloads.put(run_id, "s", b"x" * 10_000)
    if reason == "a row names it":
        await execute(
            pool,
            "UPDATE noetl.result_ref SET physical_uri = %s, store_tier = 'disk' WHERE execution_id = %s",
            stored.uri,
            run_id,
        )
    compactor = await compactor_on(pool, tmp_path, orphan_age_hours=24.0)
    for _pass in range(3):
        await collect_orphans_once(compactor)
        await execute(pool, "UPDATE noetl.orphan_payload SET seen_at = seen_at - interval '25 hours'")
    assert await payloads.list_uris("disk", "exec/") == [stored.uri]


async def test_a_dry_run_says_what_would_go_and_what_pins_the_rest(pool: Pool, dsn: str, tmp_path: Path) -> None:
    first, second = await make_range(pool, weeks=1), await make_range(pool)
    live = await make_run(pool, weeks=1, status="RUNNING")
    await make_run(pool, weeks=1, parent=live)
    await make_run(pool)
    seen = {row["partition"]: row for row in planned(dsn, 30.0)}
    assert (seen[first.suffix]["live"], seen[first.suffix]["kin"], seen[first.suffix]["ready"]) == (1, 1, 0)
    assert str(live) in seen[first.suffix]["stragglers"]
    assert (seen[second.suffix]["ready"], seen[second.suffix]["state"]) == (1, "closed")
    assert sum(row["state"] == "in use" for row in seen.values()) >= 1
    await fold_all(await compactor_on(pool, tmp_path))
    after = {row["partition"]: row for row in planned(dsn, 30.0)}
    assert (after[second.suffix]["folded"], after[second.suffix]["ready"]) == (1, 0)
    assert long_ago_ms(1) < long_ago_ms(0)


async def test_the_command_shows_what_would_go_and_changes_nothing(pool: Pool, dsn: str) -> None:
    first, second = await make_range(pool, weeks=1), await make_range(pool)
    live = await make_run(pool, weeks=1, status="RUNNING")
    await make_run(pool)
    run = CliRunner().invoke
    asked = ["compact", "--dry-run", "--database-url", dsn]
    shown = run(app, asked)
    assert shown.exit_code == 0 and f"{first.suffix} stays because of {live}" in shown.stderr
    goes = {line.split()[0]: line.split()[-1] for line in shown.stdout.splitlines() if first.suffix[:2] in line}
    assert (goes[first.suffix], goes[second.suffix]) == ("no", "yes")
    told = {row["partition"]: row for row in json.loads(run(app, [*asked, "-o", "json"]).stdout)}
    assert (told[first.suffix]["live"], told[second.suffix]["ready"]) == (1, 1)
    late = run(app, [*asked, "--retention-days", "5000", "-o", "json"])
    assert {row["recent"] for row in json.loads(late.stdout) if row["partition"] == second.suffix} == {1}
    assert await rows(pool, "SELECT 1 FROM noetl.manifest UNION SELECT 1 FROM noetl.compaction") == []
    assert isinstance(run(app, ["compact", "--database-url", dsn]).exception, Invalid)


async def test_lineage_goes_back_step_by_step_and_page_by_page_before_and_after(
    pool: Pool, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    await make_range(pool)
    run_id = await make_run(pool, steps=40)
    path = f"/api/executions/{run_id}/trace/s39"
    live = (await client.get(path)).json()
    assert [link["depth"] for link in live["chain"]] == list(range(39, -1, -1))
    assert [link["source_step"] for link in live["chain"]][-2:] == ["s38", "s39"]
    near = (await client.get(path, params={"depth": 2})).json()
    assert [link["source_step"] for link in near["chain"]] == ["s37", "s38", "s39"]
    paged: list[Any] = []
    cursor = ""
    while cursor is not None:
        page = (await client.get(path, params={"limit": 15, "cursor": cursor})).json()
        paged += page["chain"]
        cursor = page["next_cursor"]
    assert paged == live["chain"]
    await archived(pool, tmp_path)
    assert (await client.get(path)).json() == {**live, "source": "manifest"}
    refused = await client.get(path, params={"cursor": "x"})
    assert refused.status_code == 422
