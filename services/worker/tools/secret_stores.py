"""Secrets of Google Secret Manager and of HashiCorp Vault, by their own libraries, whose calls run in threads.

A credential says who asks. Without one it is the worker itself, and only for names that the operator has opened.
"""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec

from noetl_common.errors import Invalid, NoetlError, NotFound, Unavailable
from services.worker.tools.libraries import library

TIMEOUT_S = 15.0
MOUNT_DEFAULT = "secret"
_URL = re.compile(r"^[A-Z]+ \S+: ")  # the library begins its messages with the request


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks a store: the fields of a credential, None for the worker itself; `place` the project or the mount."""

    fields: dict[str, Any] | None = None
    place: str = ""


async def read_gcp(name: str, login: Login) -> str:
    """Return a secret of Google Secret Manager: `name`, or projects/p/secrets/s, with /versions/v or the latest.

    Errors: NotFound, Unavailable, Invalid; DependencyMissing names the extra.
    """
    return await asyncio.to_thread(_gcp, name, login)


async def read_vault(name: str, login: Login) -> str:
    """Return a field of a secret of Vault's KV version 2: `path#field`, or `path` of one that has a single field.

    Errors: NotFound, Unavailable, Invalid; DependencyMissing names the extra.
    """
    return await asyncio.to_thread(_vault, name, login)


def account_of(fields: dict[str, Any]) -> dict[str, Any] | None:
    """Return the key of a service account that a credential holds: in fields, or as JSON text; None without one.

    Errors: Invalid.
    """
    given = fields.get("service_account_json") or fields.get("service_account_key") or fields.get("service_account")
    if given is None:
        return fields if fields.get("private_key") and fields.get("client_email") else None
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            raise Invalid("service_account_json: expected the JSON of a service account's key, found text") from None
    if not isinstance(given, dict) or not given.get("private_key") or not given.get("client_email"):
        raise Invalid("service_account_json: expected a service account's key with client_email and private_key")
    return given


def _gcp(name: str, login: Login) -> str:
    manager = library("google.cloud.secretmanager", extra="gcp")
    errors = library("google.api_core.exceptions", extra="gcp")
    auth_errors = library("google.auth.exceptions", extra="gcp")
    network = library("requests.exceptions", extra="gcp")
    fields = login.fields or {}
    try:
        credentials, project = _google_credentials(fields)
        transport = _gcp_transport(manager, credentials, str(fields.get("endpoint") or ""))
        client = manager.SecretManagerServiceClient(transport=transport)
        with client:
            path = _gcp_path(name, login.place or str(fields.get("project") or project or ""))
            answer = client.access_secret_version(name=path, timeout=TIMEOUT_S, retry=None)
        return str(answer.payload.data.decode())
    except errors.NotFound:
        raise NotFound(f"gcp: no secret {name!r}") from None
    except errors.GoogleAPICallError as exc:
        raise _refusal("gcp", name, int(exc.code or 0), _URL.sub("", str(exc.message))) from None
    except (auth_errors.TransportError, network.RequestException) as exc:
        raise Unavailable(f"gcp: {type(exc).__name__}") from None
    except auth_errors.GoogleAuthError as exc:
        raise Invalid(f"gcp: the login is refused: {type(exc).__name__}: {exc}") from None
    except UnicodeDecodeError:
        raise Invalid(f"gcp: secret {name!r}: expected UTF-8 text, found other bytes") from None


def _gcp_transport(manager: Any, credentials: Any, endpoint: str) -> Any:
    # REST, not gRPC: one HTTPS request for a secret, without channels that outlive it.
    transport = manager.SecretManagerServiceClient.get_transport_class("rest")
    if not endpoint:
        return transport(credentials=credentials)
    parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
    return transport(credentials=credentials, host=parts.netloc, url_scheme=parts.scheme)


def _google_credentials(fields: dict[str, Any]) -> tuple[Any, str]:
    scopes = ["https://www.googleapis.com/auth/cloud-platform"]
    if account := account_of(fields):
        service_account = library("google.oauth2.service_account", extra="gcp")
        try:
            made = service_account.Credentials.from_service_account_info(account, scopes=scopes)
        except ValueError:
            raise Invalid("expected a service account's key, found one that cannot be read") from None
        return made, str(made.project_id or "")
    if token := fields.get("token") or fields.get("access_token"):
        return library("google.oauth2.credentials", extra="gcp").Credentials(str(token)), ""
    if fields:
        raise Invalid("expected a credential with service_account_json or token, found neither")
    credentials, project = library("google.auth", extra="gcp").default(scopes=scopes)
    return credentials, str(project or "")


def _gcp_path(name: str, project: str) -> str:
    path = name.strip("/")
    if not path.startswith("projects/"):
        if not project:
            raise Invalid(f"secret {name!r}: expected `project`, or a name that begins with projects/")
        path = f"projects/{project}/secrets/{path}"
    return path if "/versions/" in path else f"{path}/versions/latest"


def _vault(name: str, login: Login) -> str:
    hvac = library("hvac", extra="vault")
    fields = login.fields
    mount = (login.place or str((fields or {}).get("mount") or MOUNT_DEFAULT)).strip("/")
    path, _, field = name.partition("#")
    path = path.strip("/").removeprefix(f"{mount}/data/")
    client = _vault_client(hvac, fields)

    def read() -> dict[str, Any]:
        if fields is not None and fields.get("role_id"):
            client.auth.approle.login(str(fields["role_id"]), str(fields.get("secret_id") or "") or None)
        answer = client.secrets.kv.v2.read_secret_version(path=path, mount_point=mount, raise_on_deleted_version=True)
        return dict(answer["data"]["data"])

    found = _vault_asked(hvac, name, read)
    if not field:
        if len(found) != 1:
            raise Invalid(f"vault: secret {name!r}: expected `path#field` with one of {', '.join(sorted(found))}")
        field = next(iter(found))
    if field not in found:
        known = ", ".join(sorted(found))
        raise NotFound(f"vault: secret {path!r}: expected one of the fields {known}, found no field {field!r}")
    value = found[field]
    return value if isinstance(value, str) else json.dumps(value)


def _vault_client(hvac: Any, fields: dict[str, Any] | None) -> Any:
    if fields is None:
        return hvac.Client(timeout=TIMEOUT_S)  # VAULT_ADDR, VAULT_TOKEN and VAULT_NAMESPACE of the worker
    url = fields.get("url") or fields.get("address") or fields.get("vault_addr")
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise Invalid("vault: url: expected the URL of a Vault in the credential, found none")
    token = fields.get("token") or fields.get("vault_token")
    if not token and not fields.get("role_id"):
        raise Invalid("vault: expected token, or role_id and secret_id, in the credential, found neither")
    namespace = fields.get("namespace") or None
    return hvac.Client(url=url, token=str(token) if token else "", namespace=namespace, timeout=TIMEOUT_S)


def _vault_asked(hvac: Any, name: str, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    network = library("requests.exceptions", extra="vault")
    errors = hvac.exceptions
    try:
        return read()
    except errors.InvalidPath:
        raise NotFound(f"vault: no secret {name!r}") from None
    except errors.Forbidden as exc:
        raise _refusal("vault", name, 403, str(exc)) from None
    except (errors.VaultDown, errors.InternalServerError, errors.BadGateway, errors.RateLimitExceeded) as exc:
        raise Unavailable(f"vault: {type(exc).__name__}: {exc}") from None
    except errors.VaultError as exc:
        raise _refusal("vault", name, 400, str(exc)) from None
    except network.RequestException as exc:
        raise Unavailable(f"vault: {type(exc).__name__}") from None
    except KeyError:
        raise Invalid(f"vault: secret {name!r}: expected an answer of KV version 2, found another") from None


def _refusal(store: str, name: str, status: int, text: str) -> NoetlError:
    told = " ".join(text.split())[:300]
    kind = Unavailable if status >= 500 or status == 429 else Invalid
    return kind(f"{store}: secret {name!r} is refused ({status}): {told}")
