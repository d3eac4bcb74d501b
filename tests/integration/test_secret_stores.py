"""Vault and Google through their own libraries, against servers that speak their HTTP; absent libraries named."""

import base64
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from noetl_common.core.outcome import Outcome
from noetl_common.core.scope import Scope
from noetl_common.core.values import Value
from noetl_common.errors import Invalid, NotFound
from noetl_common.process import Service
from services.worker.keychain_kinds import KINDS, Source, Tokens
from services.worker.tools import Call, dispatch, http
from tests.running import start_service

SECRETS = {"app/db": {"user": "ann", "password": "opensesame"}, "one": {"value": "single"}, "deep": {"doc": {"a": 1}}}
GCP = {"projects/p/secrets/db/versions/latest": "sesame", "projects/p/secrets/db/versions/2": "older"}
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PEM = KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()


class Stores:
    """A Vault, a Secret Manager and a token endpoint in one server; `down` answers 503 everywhere."""

    def __init__(self) -> None:
        self.url = ""
        self.down = False
        self.hidden: list[Any] = []
        self.assertions: list[str] = []
        self.tokens = Tokens()
        self.namespaces: list[str | None] = []

    def service(self) -> Service:
        routes = [
            Route("/v1/{mount}/data/{path:path}", self._vault),
            Route("/v1/auth/approle/login", self._approle, methods=["POST", "PUT"]),
            Route("/v1/{path:path}", self._gcp),
            Route("/token", self._token, methods=["POST"]),
        ]
        return Service(name="stores", asgi=Starlette(routes=routes), host="127.0.0.1", port=0)

    async def _approle(self, request: Request) -> Response:
        if (await request.json()) != {"role_id": "role", "secret_id": "id"}:
            return JSONResponse({"errors": ["invalid role or secret ID"]}, status_code=400)
        return JSONResponse({"auth": {"client_token": "good-token", "lease_duration": 60, "policies": []}})

    async def _vault(self, request: Request) -> Response:
        self.namespaces.append(request.headers.get("x-vault-namespace"))
        if self.down:
            return JSONResponse({"errors": ["Vault is sealed"]}, status_code=503)
        if request.headers.get("x-vault-token") != "good-token":
            return JSONResponse({"errors": ["permission denied"]}, status_code=403)
        found = SECRETS.get(request.path_params["path"]) if request.path_params["mount"] == "secret" else None
        if found is None:
            return JSONResponse({"errors": []}, status_code=404)
        return JSONResponse({"data": {"data": found, "metadata": {"version": 1}}})

    async def _gcp(self, request: Request) -> Response:
        if self.down:
            return _google_error(503, "UNAVAILABLE", "come back later")
        if request.headers.get("authorization") != "Bearer good-token":
            return _google_error(403, "PERMISSION_DENIED", "not for you")
        name = request.path_params["path"].removesuffix(":access")
        if name not in GCP:
            return _google_error(404, "NOT_FOUND", f"Secret [{name}] not found")
        payload = {"data": base64.b64encode(GCP[name].encode()).decode()}
        return JSONResponse({"name": name, "payload": payload})

    async def _token(self, request: Request) -> Response:
        form = parse_qs((await request.body()).decode())
        assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
        self.assertions += form["assertion"]
        return JSONResponse({"id_token": f"id-token-{len(self.assertions)}"})

    async def credential(self, alias: str) -> dict[str, Any]:
        url = self.url
        known: dict[str, dict[str, Any]] = {
            "vault": {"url": url, "token": "good-token", "namespace": "team"},
            "approle": {"url": url, "role_id": "role", "secret_id": "id"},
            "wrong_role": {"url": url, "role_id": "role", "secret_id": "no"},
            "stranger": {"url": url, "token": "bad-token"},
            "nowhere": {"token": "good-token"},
            "nobody": {"url": url},
            "google": {"token": "good-token", "endpoint": url, "project": "p"},
            "guest": {"token": "bad-token", "endpoint": url, "project": "p"},
            "robot": {"service_account_json": json.dumps({**ACCOUNT, "token_uri": f"{url}/token"})},
            "broken": {"service_account_json": json.dumps({**ACCOUNT, "private_key": "nonsense"})},
        }
        if alias not in known:
            raise NotFound(f"no credential {alias!r}")
        return {"type": "any", "data": known[alias]}

    async def ask(self, **config: Any) -> Outcome:
        return await dispatch(
            Call(
                kind="secrets",
                label="read",
                step="read",
                execution_id=7,
                scope=Scope(load=lambda ref, key: None, workload=Value({}), ctx={}, results={}),
                credential=self.credential,
                config=config,
                conceal=self.hidden.append,
            )
        )

    async def entry(self, **fields: Any) -> Any:
        return await KINDS[fields["kind"]](
            fields, Source(credential=self.credential, tokens=self.tokens, execution_id=7)
        )


ACCOUNT = {
    "type": "service_account",
    "client_email": "robot@p.iam",
    "private_key": PEM,
    "private_key_id": "k1",
    "project_id": "p",
}


def _google_error(code: int, status: str, message: str) -> JSONResponse:
    return JSONResponse({"error": {"code": code, "status": status, "message": message}}, status_code=code)


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    made = Stores()
    async with start_service(made.service()) as running:
        made.url = running.url
        yield made
        await http.close()


@pytest.mark.parametrize(
    ("config", "value"),
    [
        ({"provider": "vault", "auth": "vault", "secret": "app/db#password"}, "opensesame"),
        ({"provider": "hashicorp", "auth": "approle", "secret": "app/db#user"}, "ann"),
        ({"provider": "vault", "credential": "vault", "secret": "secret/data/app/db#user"}, "ann"),
        ({"provider": "vault", "auth": "vault", "secret": "one", "mount": "secret"}, "single"),
        ({"provider": "vault", "auth": "vault", "secret": "deep#doc"}, '{"a": 1}'),
        ({"provider": "gcp", "auth": "google", "secret": "db"}, "sesame"),
        ({"provider": "google", "auth": "google", "secret": "projects/p/secrets/db"}, "sesame"),
        ({"provider": "gcp", "auth": "google", "secret": "projects/p/secrets/db/versions/2"}, "older"),
    ],
)
async def test_a_secret_is_read_and_hidden(stores: Stores, config: dict[str, Any], value: str) -> None:
    outcome = await stores.ask(**config)
    assert outcome.ok, outcome.error
    assert outcome.data["value"] == value and stores.hidden == [value]


@pytest.mark.parametrize(
    ("config", "kind", "words"),
    [
        ({"provider": "vault", "auth": "vault", "secret": "gone"}, "not_found", "vault: no secret 'gone'"),
        (
            {"provider": "vault", "auth": "vault", "secret": "app/db#pin"},
            "not_found",
            "expected one of the fields password, user, found no field 'pin'",
        ),
        ({"provider": "vault", "auth": "vault", "secret": "app/db"}, "config", "with one of password, user"),
        ({"provider": "vault", "auth": "stranger", "secret": "one"}, "config", "is refused (403): permission denied"),
        ({"provider": "vault", "auth": "wrong_role", "secret": "one"}, "config", "invalid role or secret ID"),
        ({"provider": "vault", "auth": "nowhere", "secret": "one"}, "config", "url: expected the URL of a Vault"),
        ({"provider": "vault", "auth": "nobody", "secret": "one"}, "config", "expected token, or role_id"),
        ({"provider": "vault", "auth": "unknown", "secret": "one"}, "not_found", "no credential 'unknown'"),
        ({"provider": "vault", "secret": "one"}, "config", "a name that NOETL_SECRETS_VAULT lists"),
        ({"provider": "gcp", "auth": "google", "secret": "gone"}, "not_found", "gcp: no secret 'gone'"),
        ({"provider": "gcp", "auth": "guest", "secret": "db"}, "config", "is refused (403): not for you"),
        ({"provider": "gcp", "auth": "vault", "secret": "db"}, "config", "expected `project`"),
        ({"provider": "gcp", "auth": "nobody", "secret": "db"}, "config", "service_account_json or token"),
        ({"provider": "gcp", "secret": "db"}, "config", "a name that NOETL_SECRETS_GCP lists"),
    ],
)
async def test_a_secret_that_cannot_be_had_is_told_without_it(
    stores: Stores, config: dict[str, Any], kind: str, words: str
) -> None:
    error = (await stores.ask(**config)).error
    assert error is not None and (error["kind"], error["retryable"]) == (kind, False), error
    assert words in error["message"] and "good-token" not in error["message"]


@pytest.mark.parametrize(("provider", "auth"), [("vault", "vault"), ("gcp", "google")])
async def test_a_store_that_is_down_may_be_asked_again(stores: Stores, provider: str, auth: str) -> None:
    stores.down = True
    error = (await stores.ask(provider=provider, auth=auth, secret="one")).error
    assert error is not None and (error["kind"], error["retryable"]) == ("connection", True)
    stores.url = "http://127.0.0.1:1"
    error = (await stores.ask(provider=provider, auth=auth, secret="one")).error
    assert error is not None and (error["kind"], error["retryable"]) == ("connection", True)


async def test_the_worker_itself_asks_for_what_the_operator_has_opened(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_SECRETS_VAULT", "app/*, other")
    monkeypatch.setenv("VAULT_ADDR", stores.url)
    monkeypatch.setenv("VAULT_TOKEN", "good-token")
    assert (await stores.ask(provider="vault", secret="app/db#user")).data["value"] == "ann"
    error = (await stores.ask(provider="vault", secret="one")).error
    assert error is not None and "NOETL_SECRETS_VAULT" in error["message"]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"provider": "vault", "secret": "app/../one"}, "without '.' and '..'"),
        ({"provider": "vault", "secret": "app/x", "mount": "../other"}, "without '.' and '..'"),
        ({"provider": "vault", "secret": "app/db#user", "mount": "other"}, "'other/app/db#user': expected `auth`"),
        ({"provider": "vault", "secret": "app/../one", "auth": "vault"}, "without '.' and '..'"),
        ({"provider": "gcp", "secret": "app-db", "project": "other"}, "'projects/other/secrets/app-db': expected"),
        ({"provider": "gcp", "secret": "app-/../db"}, "without '.' and '..'"),
    ],
)
async def test_what_is_opened_leads_nowhere_else(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], words: str
) -> None:
    monkeypatch.setenv("NOETL_SECRETS_VAULT", "app/*")
    monkeypatch.setenv("NOETL_SECRETS_GCP", "app-*")
    monkeypatch.setenv("VAULT_ADDR", stores.url)
    monkeypatch.setenv("VAULT_TOKEN", "good-token")
    error = (await stores.ask(**config)).error
    assert error is not None and error["kind"] == "config", error
    assert words in error["message"]


async def test_another_mount_is_opened_by_its_name(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_SECRETS_VAULT", "other/app/*")
    monkeypatch.setenv("VAULT_ADDR", stores.url)
    monkeypatch.setenv("VAULT_TOKEN", "good-token")
    error = (await stores.ask(provider="vault", secret="app/db#user", mount="other")).error
    assert error is not None and error["code"] == "SECRET_NOT_FOUND", "it was asked for, and that mount has none"


async def test_keychain_entries_read_the_same_stores(stores: Stores) -> None:
    wanted = {"user": "app/db#user", "one": "one"}
    found = await stores.entry(kind="secrets", provider="vault", auth="vault", map=wanted)
    assert found == {"user": "ann", "one": "single"} and stores.namespaces == ["team", "team"]
    found = await stores.entry(kind="secrets", provider="gcp", auth="google", map={"db": "db"})
    assert found == {"db": "sesame"}


async def test_a_google_id_token_is_asked_for_with_the_service_accounts_signature(stores: Stores) -> None:
    entry = {"kind": "google_id_token", "service_account_credential": "robot", "target_audience": "https://run.app"}
    for _ in range(2):
        found = await stores.entry(**entry)
    assert found == {"id_token": "id-token-1", "token_type": "Bearer", "audience": "https://run.app"}
    (assertion,) = stores.assertions
    signed, _, signature = assertion.rpartition(".")
    KEY.public_key().verify(_decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    claims = json.loads(_decoded(signed.partition(".")[2]))
    assert (claims["target_audience"], claims["iss"]) == ("https://run.app", "robot@p.iam")
    assert claims["aud"] == f"{stores.url}/token" and claims["exp"] - claims["iat"] == 3600


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"auth": "robot"}, "target_audience: expected the URL"),
        ({"target_audience": "x"}, "auth: expected the name of a credential"),
        ({"target_audience": "x", "auth": "vault"}, "expected a credential with service_account_json"),
        ({"target_audience": "x", "auth": "broken"}, "private_key: expected an RSA key in PEM"),
    ],
)
async def test_a_google_id_token_that_cannot_be_asked_for_says_why(
    stores: Stores, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        await stores.entry(kind="google_id_token", **fields)


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


WITHOUT = """
import asyncio, builtins, importlib, sys
blocked = {blocked!r}
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name == blocked or name.startswith(blocked + "."):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocker())
from noetl_common.core.scope import Scope
from noetl_common.core.values import Value
from services.worker.tools import Call, dispatch
async def credential(alias):
    return {{"type": alias, "data": {login!r}}}
call = Call(kind={kind!r}, label="t", step="t", execution_id=1, credential=credential, config={config!r},
            scope=Scope(load=lambda ref, key: None, workload=Value({{}}), ctx={{}}, results={{}}))
outcome = asyncio.run(dispatch(call))
print(outcome.error["kind"], outcome.error["message"])
"""
LOGIN = {"account": "a", "user": "u", "password": "p", "url": "http://127.0.0.1:1", "token": "t", "project": "p"}
SNOWFLAKE = {"type": "snowflake", "auth": "snowflake", "table": "t"}


@pytest.mark.parametrize(
    ("blocked", "kind", "config", "extra"),
    [
        ("kubernetes", "container", {"image": "x"}, "k8s"),
        ("snowflake", "snowflake", {"auth": "snowflake", "command": "SELECT 1"}, "snowflake"),
        ("snowflake", "transfer", {"source": SNOWFLAKE, "target": {"type": "duckdb", "table": "t"}}, "snowflake"),
        ("google.cloud.storage", "gcs", {"auth": "gcp", "operation": "list", "bucket": "b"}, "gcs"),
        ("google.cloud.secretmanager", "secrets", {"provider": "gcp", "auth": "gcp", "secret": "s"}, "gcp"),
        ("hvac", "secrets", {"provider": "vault", "auth": "vault", "secret": "s"}, "vault"),
        ("duckdb", "duckdb", {"command": "SELECT 1"}, "duckdb"),
    ],
)
def test_a_tool_whose_library_is_absent_names_the_extra(
    blocked: str, kind: str, config: dict[str, Any], extra: str
) -> None:
    program = WITHOUT.format(blocked=blocked, kind=kind, config=config, login=LOGIN)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"pip install noetl[{extra}]" in done.stdout, done.stdout + done.stderr
