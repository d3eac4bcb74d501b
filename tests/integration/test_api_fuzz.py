"""Every route of the API against what nobody should send: a clear problem document, never a 500."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from noetl_common.db import Pool
from services.ingest import claims
from services.ingest.asgi import build_asgi
from services.ingest.endpoints import Endpoint
from services.ingest.routes import ENDPOINTS
from tests.ingesting import PLAYBOOK, api_on

# Fragments of JSON, as text: some of them no encoder would write.
VALUES = (
    "null",
    "true",
    "-1",
    "0",
    "1.5",
    "1e308",
    "1e400",
    "NaN",
    str(1 << 31),
    str((1 << 53) + 1),
    str((1 << 63) - 1),
    str(1 << 63),
    str(1 << 64),
    str(-(1 << 63) - 1),
    "1" + "0" * 30,
    '""',
    '"abc"',
    '"\\u0000"',
    '"a\\u0000b"',
    '"\\ud800"',
    '"\\u00b2"',
    '"\\u0663"',
    '"9999999999999999999"',
    '"99999999999999999999999"',
    '"{{ 1 / 0 }}"',
    '"../../etc/passwd"',
    '"' + "x" * 3000 + '"',
    '"\\ud83d\\ude00"',
    "[]",
    "[[]]",
    "[null]",
    "{}",
    '{"\\u0000": 1}',
    '{"a": {"b": "\\u0000"}}',
    '{"": null}',
)
BODIES = (
    b"",
    b" ",
    b"{",
    b"null",
    b"[]",
    b"1",
    b'"text"',
    b"not json",
    b"\x00",
    b"\xff\xfe{}",
    b'{"a": "\xff"}',
    b'{"path": "\xc3\x28", "name": "\xff", "worker_id": "\xff", "events": "\xff", "content": "\xff"}',
    b"[" * 100 + b"]" * 100,
    b'{"a":' * 2000 + b"1" + b"}" * 2000,
    b"[" * 500_000,
    b'{"a": 1, "a": 2}',
    "\ufeff{}".encode(),
    b"<?xml version='1.0'?>",
    b"a=b&c=d",
)
# What goes into paths and queries, percent-encoded whole or as it stands.
TEXTS = (
    "",
    "0",
    "-1",
    "1.5",
    "abc",
    "\x00",
    "a\x00b",
    "\u00b2",
    "\u0663",
    "\U0001f600",
    "..",
    "../../etc/passwd",
    "a/b",
    "a?b#c",
    "%",
    "%00",
    "null",
    "true",
    "1e5",
    " 1 ",
    "1_0",
    str(1 << 31),
    str((1 << 63) - 1),
    str(1 << 63),
    "9" * 19,
    "9" * 40,
    "x" * 2000,
    "'; DROP TABLE noetl.event; --",
    "{{ 1 / 0 }}",
)
RAW_TEXTS = ("%00", "%ff", "%c3%28", "%2e%2e%2f", "%", "%zz", "..;/", "%u0041")
LEAF = "@leaf@"
RESULT = {
    "execution_id": 1,
    "ref_id": 1,
    "step": "s",
    "bytes": 1,
    "sha256": "0" * 64,
    "inline": 1,
    "rows": 1,
    "preview": 1,
    "extracted": {"a": 1},
    "parent_ref_id": 1,
    "task_label": "t",
    "loop_epoch": 1,
    "iter_index": 1,
}
REPORT = {
    "execution_id": 1,
    "event_type": "command.completed",
    "command_id": 1,
    "claim_token": 1,
    "step": "s",
    "attempt": 1,
    "status": "success",
    "result": {"status": "success", "reference": {"ref": "x"}, "context": {"a": 1}, "error": {"message": "x"}},
    "loop_epoch": 1,
    "iter_index": 1,
    "event_time": "2026-01-01T00:00:00Z",
    "meta": {"a": 1},
    "results": [RESULT],
}
FOREIGN = {
    "execution_id": "1",
    "name": "command.completed",
    "step": "s",
    "worker_id": "w",
    "command_id": 1,
    "attempt": 1,
    "status": "success",
    "payload": {"command_id": 1, "result": {"a": 1}, "attempt": 1, "claim_token": 1},
    "meta": {"command_id": 1},
    "error": {"message": "x", "code": "C"},
}
PUT = {
    "name": "n",
    "data": {"a": 1},
    "scope": "execution",
    "store": "kv",
    "ttl": "1h",
    "source_step": "s",
    "correlation": {"a": 1},
    "extracted": {"a": 1},
    "compress": True,
}
# A body that each endpoint takes; each of its values in turn is replaced by what it should not be.
VALID: dict[str, tuple[Any, ...]] = {
    "/api/catalog/register": ({"content": PLAYBOOK, "resource_type": "Playbook", "path": "p"},),
    "/api/catalog/list": ({"resource_type": "Playbook", "path": "p", "limit": 5, "offset": 0},),
    "/api/catalog/resource": ({"path": "tests/hello", "version": 1}, {"catalog_id": 1}),
    "/api/execute": (
        {"path": "tests/hello", "version": 1, "payload": {"a": 1}, "workload": {}, "parent_execution_id": 1},
        {"catalog_id": 1},
    ),
    "/api/execute/batch": (
        {"executions": [{"path": "tests/hello", "payload": {"a": 1}, "idempotency_key": "k"}, {"catalog_id": 1}]},
    ),
    "/api/events": (FOREIGN, {**FOREIGN, "name": "command.failed"}),
    "/api/events/batch": (
        {"worker_id": "w", "events": [REPORT]},
        {"worker_id": "w", "execution_id": 1, "events": [{**FOREIGN, "payload": {"response": {"a": 1}}}]},
    ),
    "/api/commands/claim": ({"worker_id": "w", "pool": "default", "max": 1, "wait_s": 0},),
    "/api/commands/heartbeat": ({"worker_id": "w", "leases": [[1, 2, 3]], "active": 1, "capacity": 1},),
    "/api/commands/{command_id}/details": (
        {"worker_id": "w", "execution_id": 1, "claim_token": 1, "details": {"a": 1}, "results": [RESULT]},
    ),
    "/api/commands/{event_id}/claim": ({"worker_id": "w"},),
    "/api/worker/pool/register": (
        {
            "name": "w",
            "component_type": "worker_pool",
            "runtime": {"kind": "python"},
            "status": "ready",
            "capacity": 1,
            "uri": "u",
            "hostname": "h",
            "pid": 1,
            "labels": {"pool": "default"},
            "meta": {"a": 1},
            "instance": "i",
        },
    ),
    "/api/worker/pool/heartbeat": ({"name": "w9", "component_type": "worker_pool", "registration": {"name": "w"}},),
    "/api/worker/pool/deregister": ({"name": "w", "component_type": "worker_pool"},),
    "/api/credentials": (
        {"name": "c", "type": "t", "data": {"a": 1}, "meta": {"a": 1}, "tags": ["a"], "description": "d"},
    ),
    "/api/result/{execution_id}": (PUT,),
    "/api/temp/{execution_id}": (PUT,),
    "/api/vars/{execution_id}": (
        {"variables": {"a": 1}, "var_type": "user_defined", "source_step": "s"},
        {"var_name": "a", "var_value": 1},
    ),
    "/api/catalog/archive": ({"path": "tests/other", "version": 1},),
    "/api/catalog/delete": ({"path": "tests/other", "version": 1},),
    "/api/catalog/restore": ({"path": "tests/other", "version": 1},),
    "/api/executions/{execution_id}/rerun": ({"workload": {"a": 1}, "payload": {"b": 2}, "resource_kind": "playbook"},),
    "/api/executions/cleanup": ({"older_than_minutes": 5, "dry_run": False},),
    "/api/context/render": (
        {"template": {"a": "{{ x }}"}, "execution_id": 1, "context": {"x": 1}},
        {"template": "{{ x }}"},
    ),
    "/api/results/read": ({"execution_id": 1, "refs": [1]},),
    "/api/executions/{execution_id}/cancel": ({"reason": "r", "cascade": True},),
    "/api/executions/{execution_id}/finalize": ({"status": "FAILED", "error": {"message": "m"}, "reason": "r"},),
}


@pytest.fixture
async def client(pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    monkeypatch.setattr(claims, "WAIT_MAX_S", 0.01)
    transport = httpx.ASGITransport(build_asgi(api_on(pool, tmp_path)))
    async with httpx.AsyncClient(transport=transport, base_url="http://ingest") as opened:
        yield opened


def mutations(value: Any) -> list[Any]:
    """Return copies of `value`, each with another one of its parts replaced by the mark of a leaf."""
    found: list[Any] = [LEAF]
    if isinstance(value, dict):
        for key, part in value.items():
            found += [{**value, key: changed} for changed in mutations(part)]
    elif isinstance(value, list):
        for index, part in enumerate(value):
            found += [[*value[:index], changed, *value[index + 1 :]] for changed in mutations(part)]
    return found


def hostile_bodies(path: str) -> list[bytes]:
    """Return malformed bodies, and well-formed ones with one wrong value each."""
    bodies = list(BODIES)
    for valid in VALID[path]:
        for changed in mutations(valid):
            text = json.dumps(changed)
            bodies += [text.replace(f'"{LEAF}"', value).encode() for value in VALUES]
    return bodies


def filled(endpoint: Endpoint, text: str) -> str:
    """Return the endpoint's path with `text` in the place of each of its parameters."""
    parts = [text if part.startswith("{") else part for part in endpoint.path.split("/")]
    return "/".join(parts)


def fault_of(answer: httpx.Response) -> str:
    """Return what is wrong with an answer to nonsense: an internal error, or a refusal that does not say why."""
    if answer.status_code < 400:
        return ""
    if answer.status_code >= 500:
        return f"{answer.status_code} {answer.text[:200]}"
    if answer.headers.get("content-type") != "application/problem+json":
        return f"content type {answer.headers.get('content-type')}"
    body = answer.json()
    lacking = [key for key in ("detail", "error", "code", "title") if not body.get(key)]
    return f"lacks {lacking}" if lacking or body["status"] != answer.status_code else ""


WITH_BODY = [endpoint for endpoint in ENDPOINTS if endpoint.body is not None]


def named(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


@pytest.mark.parametrize("endpoint", WITH_BODY, ids=named)
async def test_no_body_is_answered_with_an_internal_error(client: httpx.AsyncClient, endpoint: Endpoint) -> None:
    assert (await client.post("/api/catalog/register", json={"content": PLAYBOOK})).status_code == 200
    target = filled(endpoint, "5")
    faults = []
    for body in hostile_bodies(endpoint.path):
        answer = await client.request(endpoint.method, target, content=body)
        fault = fault_of(answer)
        if fault:
            faults.append(f"{body[:300]!r}: {fault}")
    assert not faults, "\n".join(faults[:20])


def hostile_targets(endpoint: Endpoint) -> list[str]:
    """Return the endpoint's path with wrong parts, and with wrong values of each query parameter."""
    encoded = [quote(text, safe="") for text in TEXTS] + list(RAW_TEXTS)
    targets = [filled(endpoint, text) for text in encoded]
    for name in endpoint.query:
        targets += [f"{filled(endpoint, '5')}?{name}={text}" for text in encoded]
        targets.append(f"{filled(endpoint, '5')}?{name}=1&{name}=x")
    return targets


async def test_no_path_or_query_is_answered_with_an_internal_error(client: httpx.AsyncClient) -> None:
    faults = []
    for endpoint in ENDPOINTS:
        for target in hostile_targets(endpoint):
            fault = fault_of(await client.request(endpoint.method, target))
            if fault:
                faults.append(f"{endpoint.method} {target[:300]}: {fault}")
    assert not faults, "\n".join(faults[:20])


async def test_a_method_that_a_path_does_not_have_is_answered_with_those_it_has(client: httpx.AsyncClient) -> None:
    for path in {endpoint.path for endpoint in ENDPOINTS}:
        allowed = {endpoint.method for endpoint in ENDPOINTS if endpoint.path == path}
        for method in {"PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "POST", "GET", "BREW"} - allowed:
            answer = await client.request(method, path.replace("{", "").replace("}", ""))
            if answer.status_code == 404:
                continue  # another route's pattern took it: it names an unknown thing
            assert answer.status_code == 405, f"{method} {path}: {answer.status_code}"
            assert not fault_of(answer)
            assert allowed <= {name.strip() for name in answer.headers["allow"].split(",")}, f"{method} {path}"
