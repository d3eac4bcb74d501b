"""Results of a whole stack in an S3 server: by size, with NATS stopped, with the server gone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from noetl_cli.embedded.stack import Plan, Stack, throwaway_stack
from tests.conformance.running import Run, document, execute, register
from tests.object_stores import S3Server

WORKFLOW = """
- step: start
  tool: {kind: python, input: {count: 50, size: 50}, code: "CODE"}
  next: {arcs: [{step: middle}]}
- step: middle
  tool: {kind: python, input: {count: 500, size: 200}, code: "CODE"}
  next: {arcs: [{step: large}]}
- step: large
  tool: {kind: python, input: {count: 2000, size: 1000}, code: "CODE"}
  next: {arcs: [{step: look}]}
- step: look
  tool:
    kind: python
    input:
      stores: ["{{ start._store | default('none') }}", "{{ middle._store }}", "{{ large._store }}"]
      last: ["{{ start.items[49].id }}", "{{ middle.items[499].id }}", "{{ large.items[1999].id }}"]
    code: "result = {'stores': stores, 'last': last}"
""".replace("CODE", "result = {'items': [{'id': i, 'text': 'x' * size} for i in range(count)]}")


@pytest.fixture
def stack(own_s3: S3Server, tmp_path: Path) -> Iterator[Stack]:
    login = own_s3.login
    settings = {
        "NOETL_DEFAULT_STORE_TIER": "minio",
        "NOETL_MINIO_ENDPOINT": login.endpoint,
        "NOETL_MINIO_ACCESS_KEY": login.access_key,
        "NOETL_MINIO_SECRET_KEY": login.secret_key,
    }
    # Nothing is started again: NATS has to stay away.
    with throwaway_stack(tmp_path / "stack", Plan(owner="test", restart=False, settings=settings)) as started:
        yield started


def test_where_results_stand_follows_from_size_and_settings_alone(stack: Stack, own_s3: S3Server) -> None:
    assert stack.running is not None
    with httpx.Client(base_url=stack.running.api_url, timeout=30) as api:
        path = register(api, document(WORKFLOW))
        first = execute(api, path, {})
        assert first.result("look") == {"stores": ["none", "kv", "minio"], "last": [49, 499, 1999]}
        assert copies_in(api)["ok"] > 0
        stack.servers["nats"].stop()
        second = execute(api, path, {})
        assert seen(second) == seen(first)
        own_s3.kill()
        third = execute(api, path, {})
        assert (third.status["status"], third.status["error"]["code"]) == ("FAILED", "REFERENCE_NOT_AVAILABLE")
        assert third.entered() == ["start", "middle"]
        own_s3.start()
        assert seen(execute(api, path, {})) == seen(first)


def seen(run: Run) -> Any:
    """Return what a run shows of itself: its trace without ids, its last result, where each result stands."""
    assert run.status["status"] == "COMPLETED", run.status
    trace = sorted((event["event_type"], event["node_name"], event["status"]) for event in run.events())
    links = [run.api.get(f"/api/executions/{run.id}/trace/{step}").json()["chain"][-1] for step in ("middle", "large")]
    places = [(link["store"], link["physical_uri"].partition("://")[0], link["sha256"]) for link in links]
    assert [(store, place) for store, place, _digest in places] == [("kv", "minio"), ("minio", "minio")]
    return trace, run.result("look"), places


def copies_in(api: httpx.Client) -> dict[str, float]:
    """Return {outcome: how many copies were written}."""
    found = {}
    for line in api.get("/metrics").text.splitlines():
        if line.startswith('noetl_object_store_ops_total{op="put"') and 'tier="kv"' in line:
            found[line.split('outcome="')[1].split('"')[0]] = float(line.split()[-1])
    return found
