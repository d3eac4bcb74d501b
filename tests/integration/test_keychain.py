"""The keychain in a worker's pipeline: what is resolved, when, what is asked of others, and what is never told."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from noetl_common import log
from noetl_common.core.outcome import Outcome
from noetl_common.core.playbook import Rule, Task
from noetl_common.core.scope import Scope, system_names
from noetl_common.core.values import Ref, Value
from noetl_common.errors import NotFound
from noetl_common.process import Service
from services.worker.api import LoopPage
from services.worker.payloads import Payloads
from services.worker.pipeline import Ended, Machine, Pipeline, Work
from services.worker.tools import Call, dispatch, failed, http
from tests.running import start_service

SECRET = "canary-Rw6n-secret"
SHORT = "s3c!"
ENTRIES: tuple[dict[str, Any], ...] = (
    {"name": "app", "kind": "static", "map": {"id": "{{ client }}", "secret": SECRET, "pin": SHORT}},
    {"name": "plain", "kind": "bearer", "token": "{{ workload.api_key }}"},
    {"name": "login", "kind": "credential", "credential": "{{ login_alias }}"},
    {"name": "env", "kind": "secrets", "provider": "env", "map": {"key": "OPEN_KEY"}},
    {"name": "shut", "kind": "secrets", "provider": "env", "map": {"key": "SHUT_KEY"}},
    {"name": "file", "kind": "secrets", "provider": "file", "map": {"key": "inner/key"}},
    {"name": "escape", "kind": "secrets", "provider": "file", "map": {"key": "../outside"}},
    {
        "name": "token",
        "kind": "oauth2",
        "endpoint": "{{ peer }}/token",
        "data": {"grant_type": "client_credentials", "client_secret": "{{ keychain.app.secret }}"},
    },
    {"name": "denied", "kind": "oauth2", "endpoint": "{{ peer }}/denied", "data": {"secret": SECRET}},
    {"name": "google", "kind": "google_id_token", "target_audience": "x"},
    {"name": "cloud", "kind": "secrets", "provider": "gcp", "map": {"key": "projects/p"}},
    {"name": "odd", "kind": "riddle"},
    {"name": "place", "kind": "static", "map": {"host": "db.example", "pin": 90210, "dsn": "pg://ann:canary%2Fb@h/x"}},
    {"name": "ahead", "kind": "static", "map": {"x": "{{ keychain.later.x }}"}},
    {"name": "later", "kind": "static", "map": {"x": "1"}},
)


class Peer:
    """A token endpoint that counts, and one that refuses and repeats what it was sent."""

    def __init__(self) -> None:
        self.url = ""
        self.forms: list[str] = []
        self.expires_in: Any = 3600

    async def token(self, request: Request) -> Response:
        self.forms.append((await request.body()).decode())
        token = f"canary-token-{len(self.forms)}"
        return JSONResponse({"access_token": token, "token_type": "Bearer", "expires_in": self.expires_in})

    async def denied(self, request: Request) -> Response:
        return Response(f"no: {(await request.body()).decode()}", status_code=400)


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    made = Peer()
    routes = [Route("/token", made.token, methods=["POST"]), Route("/denied", made.denied, methods=["POST"])]
    service = Service(name="stub", asgi=Starlette(routes=routes), host="127.0.0.1", port=0)
    async with start_service(service) as running:
        made.url = running.url
        yield made
        await http.close()


class Nothing:
    async def payload(self, ref: Ref) -> bytes:
        raise AssertionError(ref)

    async def loop_page(self, ref: Ref, *, after: int) -> LoopPage:
        raise AssertionError(ref)


class Bench:
    """A worker whose tool `echo` keeps what it saw and returns it; `fail` fails with what it saw."""

    def __init__(self, url: str) -> None:
        self.seen: list[Any] = []
        self.machine = Machine(
            payloads=Payloads(Nothing(), bytes_max=1000), credential=self.credential, dispatch=self.dispatch
        )
        self.workload = {"peer": url, "client": "client-77", "api_key": "canary-key", "login_alias": "pg"}

    async def credential(self, alias: str) -> dict[str, Any]:
        if alias != "pg":
            raise NotFound(f"no credential {alias!r}")
        return {"type": "postgres", "data": {"host": "db", "password": SECRET}}

    async def dispatch(self, call: Call) -> Outcome:
        if call.kind not in ("echo", "fail"):
            return await dispatch(call)
        self.seen.append(call.config["x"])
        if call.kind == "fail":
            return failed("tool", f"it failed with {call.config['x']}", retryable=True, detail=call.config["x"])
        return Outcome(data={"saw": call.config["x"]})

    async def run(self, *tasks: Task) -> Ended:
        workload = Value(self.workload)

        def scope(variables: dict[str, Any]) -> Scope:
            system = system_names(execution_id=7, catalog_id=1)
            ctx = {name: Value(value) for name, value in variables.items()}
            return Scope(load=lambda ref, key: None, workload=workload, ctx=ctx, results={}, system=system)

        work = Work(
            execution_id=7,
            step="ask",
            tasks=tasks,
            scope=scope({}),
            rescoped=scope,
            is_pipeline=True,
            keychain=ENTRIES,
        )
        return await Pipeline(work, self.machine).run()

    async def read(self, template: str, kind: str = "echo") -> Ended:
        return await self.run(Task(label="t", kind=kind, config={"x": template}))


@pytest.fixture
def bench(peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    (tmp_path / "open" / "inner").mkdir(parents=True)
    (tmp_path / "open" / "inner" / "key").write_text("canary-file\n")
    (tmp_path / "outside").write_text("canary-outside")
    monkeypatch.setenv("NOETL_SECRETS_ENV", "OTHER, OPEN_*")
    monkeypatch.setenv("NOETL_SECRETS_DIR", str(tmp_path / "open"))
    monkeypatch.setenv("OPEN_KEY", "canary-env")
    monkeypatch.setenv("SHUT_KEY", "canary-shut")
    return Bench(peer.url)


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{{ keychain.app.secret }}", SECRET),
        ("{{ keychain.app }}", {"id": "client-77", "secret": SECRET, "pin": SHORT}),
        ("id={{ keychain.app.id }}", "id=client-77"),
        ("Bearer {{ keychain.plain }}", "Bearer canary-key"),
        ("{{ keychain['plain'].token }}", "canary-key"),
        ("{{ keychain.login.password }}", SECRET),
        ("{{ keychain.env.key }}", "canary-env"),
        ("{{ keychain.file.key }}", "canary-file"),
        ("Bearer {{ keychain.token.access_token }}", "Bearer canary-token-1"),
    ],
)
async def test_a_field_of_an_entry_reaches_the_tool_and_no_result(bench: Bench, template: str, value: Any) -> None:
    ended = await bench.read(template)
    assert bench.seen == [value], ended.error
    assert ended.status == "completed"
    for canary in (SECRET, SHORT, "canary"):
        assert canary not in str(ended.labelled) + str(ended.last)


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ keychain.nobody.token }}", "no entry 'nobody'"),
        ("Bearer {{ keychain.nobody }}", "no entry 'nobody'"),
        (
            "{{ keychain.app.nothing }}",
            "keychain.app: expected one of the fields id, pin, secret, found no field 'nothing'",
        ),
        ("{{ keychain.shut.key }}", "keychain.shut: variable 'SHUT_KEY' is not opened"),
        ("{{ keychain.escape.key }}", "keychain.escape: file '../outside': expected a name inside"),
        (
            "{{ keychain.google.id_token }}",
            "keychain.google: auth: expected the name of a credential",
        ),
        (
            "{{ keychain.cloud.key }}",
            "keychain.cloud: gcp: secret 'projects/p': expected `auth` with a credential",
        ),
        ("{{ keychain.odd.x }}", "keychain.odd: kind: expected one of"),
        ("{{ keychain.ahead.x }}", "no entry 'later'"),
        ("{{ keychain.denied.access_token }}", "keychain.denied: endpoint: expected a token, found: POST"),
    ],
)
async def test_an_entry_that_does_not_resolve_fails_and_names_itself(bench: Bench, template: str, says: str) -> None:
    ended = await bench.read(template)
    assert ended.status == "failed" and bench.seen == []
    assert ended.error is not None and says in ended.error["message"]
    assert "canary" not in str(ended.error)


async def test_a_credential_that_is_not_there_names_the_entry(bench: Bench) -> None:
    bench.workload["login_alias"] = "gone"
    ended = await bench.read("{{ keychain.login.password }}")
    assert ended.error is not None and "keychain.login: no credential 'gone'" in ended.error["message"]


async def test_nothing_is_asked_for_until_a_field_reads_it(bench: Bench, peer: Peer) -> None:
    assert (await bench.read("nothing of it")).status == "completed"
    assert (await bench.read("{{ keychain.app.id }}")).status == "completed"
    assert peer.forms == []


async def test_a_token_is_asked_for_once_until_it_runs_out(bench: Bench, peer: Peer) -> None:
    for _ in range(3):
        await bench.read("{{ keychain.token.access_token }}")
    assert len(peer.forms) == 1
    assert peer.forms[0] == f"grant_type=client_credentials&client_secret={SECRET}"
    peer.expires_in = 10
    bench.machine.tokens = type(bench.machine.tokens)()
    for _ in range(2):
        await bench.read("{{ keychain.token.access_token }}")
    assert len(peer.forms) == 3


async def test_a_retry_asks_for_a_new_token(bench: Bench, peer: Peer) -> None:
    rules = (Rule(when="{{ output.status == 'error' }}", do="retry", attempts=2),)
    config = {"x": "{{ keychain.token.access_token }}"}
    ended = await bench.run(Task(label="t", kind="fail", config=config, rules=rules))
    assert bench.seen == ["canary-token-1", "canary-token-2"]
    assert "canary" not in str(ended.error) and "***" in str(ended.error)


async def test_no_error_variable_or_log_line_tells_a_secret(bench: Bench) -> None:
    ended = await bench.read("{{ keychain.app.secret }} {{ keychain.app.pin }}", kind="fail")
    assert ended.error is not None and ended.error["message"] == "it failed with *** ***"
    assert SECRET not in str(ended.error) and log.scrubbed(f"at {SECRET}") == "at ***"
    kept = {"ctx.kept": "{{ output.saw }}", "ctx.coded": "{{ output.saw | tojson }}"}
    ended = await bench.run(Task(label="t", kind="echo", config={"x": "{{ keychain.app.secret }}"}, set=kept))
    assert ended.variables == {"kept": "***", "coded": '"***"'}


async def test_digits_and_passwords_in_urls_are_hidden_and_places_are_not(bench: Bench) -> None:
    template = {
        "p": "{{ keychain.place }}",
        "n": "{{ 90210 }}",
        "m": "{{ 90211 }}",
        "t": "no canary/b here: canary%2Fb",
    }
    ended = await bench.run(Task(label="t", kind="echo", config={"x": template}))
    seen = {"host": "db.example", "pin": "***", "dsn": "***"}
    assert ended.labelled == {"t": {"saw": {"p": seen, "n": "***", "m": 90211, "t": "no *** here: ***"}}}


async def test_the_secrets_tool_serves_the_tasks_behind_it_and_no_result(bench: Bench) -> None:
    read = Task(label="read", kind="secrets", config={"provider": "env", "secret": "OPEN_KEY"})
    ended = await bench.run(read, Task(label="use", kind="echo", config={"x": "{{ read.value }}"}))
    assert bench.seen == ["canary-env"]
    assert ended.labelled == {
        "read": {"provider": "env", "name": "OPEN_KEY", "value": "***"},
        "use": {"saw": "***"},
    }


@pytest.mark.parametrize(
    ("config", "kind", "says"),
    [
        ({"secret": "SHUT_KEY"}, "config", "not opened"),
        ({"secret": "OPEN_NOT_SET"}, "not_found", "is not set"),
        ({"provider": "file", "secret": "gone"}, "not_found", "cannot be read"),
        ({"provider": "vault", "secret": "x"}, "config", "a name that NOETL_SECRETS_VAULT lists"),
        ({"provider": "riddle", "secret": "x"}, "config", "provider: expected env, file, gcp or vault"),
        ({}, "config", "expected `secret`"),
    ],
)
async def test_a_secret_that_cannot_be_had_is_an_error_outcome(
    bench: Bench, config: dict[str, Any], kind: str, says: str
) -> None:
    ended = await bench.run(Task(label="read", kind="secrets", config=config))
    assert ended.error is not None and ended.error["kind"] == kind and says in ended.error["message"]
