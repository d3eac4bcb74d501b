"""Where secrets are read: variables and files that the operator has opened to playbooks, and stores elsewhere."""

import asyncio
import fnmatch
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec

from noetl_common.config import env, load
from noetl_common.errors import Invalid, NotFound, TooLarge
from services.worker.tools import Credential
from services.worker.tools.secret_stores import MOUNT_DEFAULT, Login, read_gcp, read_vault

SECRET_BYTES_MAX = 64 * 1024
WORKER = Login()
# {provider: (the name of its store, what reads it)}
STORES: dict[str, tuple[str, Callable[[str, Login], Awaitable[str]]]] = {
    "gcp": ("gcp", read_gcp),
    "google": ("gcp", read_gcp),
    "gcp_secret_manager": ("gcp", read_gcp),
    "vault": ("vault", read_vault),
    "hashicorp": ("vault", read_vault),
}

SecretsEnv = Annotated[
    str,
    env(
        "NOETL_SECRETS_ENV",
        doc="Variables of the worker that playbooks may read as secrets, separated by commas; * matches any text.",
    ),
]
SecretsDir = Annotated[
    str, env("NOETL_SECRETS_DIR", doc="Folder whose files playbooks may read as secrets; empty: none.")
]
SecretsGcp = Annotated[
    str,
    env(
        "NOETL_SECRETS_GCP",
        doc="Secrets of Google Secret Manager (name, or projects/p/secrets/name where a playbook says the project) "
        "that playbooks may read as the worker, separated by commas; * matches any text.",
    ),
]
SecretsVault = Annotated[
    str,
    env(
        "NOETL_SECRETS_VAULT",
        doc="Secrets of Vault (path#field, or mount/path#field of another mount than secret) that playbooks may read "
        "as the worker (VAULT_ADDR, VAULT_TOKEN), separated by commas; * matches any text.",
    ),
]
GcsBuckets = Annotated[
    str,
    env(
        "NOETL_GCS_BUCKETS", doc="Buckets of Google Cloud Storage that playbooks may use as the worker; * is any text."
    ),
]


class SecretSources(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator opens to the secrets tool and to keychain entries of kind secrets."""

    secrets_env: SecretsEnv = ""
    secrets_dir: SecretsDir = ""

    secrets_gcp: SecretsGcp = ""
    secrets_vault: SecretsVault = ""
    gcs_buckets: GcsBuckets = ""

    def opens(self, store: str, full_name: str) -> bool:
        """Return whether playbooks may read this secret of a store as the worker itself."""
        return _matches(self.secrets_gcp if store == "gcp" else self.secrets_vault, full_name)

    def allows(self, variable: str) -> bool:
        """Return whether playbooks may read this variable."""
        return _matches(self.secrets_env, variable)


async def read_secret(provider: Any, name: Any, login: Login = WORKER) -> str:
    """Return one secret of provider `env`, `file`, `gcp` or `vault`.

    Errors: Invalid for a provider or a name that is none, or one that is not opened; NotFound when there is nothing;
    Unavailable when a store does not answer; DependencyMissing names the extra of a provider that is not installed.
    """
    if not isinstance(name, str) or not name:
        raise Invalid(f"expected the name of a secret, found {type(name).__name__}")
    kind = str(provider or "env").lower()
    sources = load(SecretSources)
    if kind == "env":
        return _variable(sources, name)
    if kind == "file":
        return await asyncio.to_thread(_file, sources, name)
    if kind not in STORES:
        raise Invalid(f"provider: expected env, file, gcp or vault, found {kind!r}")
    store, read = STORES[kind]
    full_name = full_name_of(store, name, login.place)
    if login.fields is None and not sources.opens(store, full_name):
        setting = f"NOETL_SECRETS_{store.upper()}"
        raise Invalid(
            f"{store}: secret {full_name!r}: expected `auth` with a credential, or a name that {setting} lists"
        )
    return await read(name, login)


def full_name_of(store: str, name: str, place: str) -> str:
    """Return the name of a secret with the mount or the project that a playbook names itself, as the operator opens it.

    Errors: Invalid for a name that leads elsewhere than it says.
    """
    path = "/".join((place, name.partition("#")[0]))
    if any(part in (".", "..") for part in path.split("/")):
        raise Invalid(f"{store}: secret {name!r}: expected a name without '.' and '..' between slashes, found one")
    if store == "gcp":
        return name if not place or name.startswith("projects/") else f"projects/{place}/secrets/{name}"
    place = place.strip("/")
    return name if place in ("", MOUNT_DEFAULT) else f"{place}/{name}"


def check_open(bucket: str) -> None:
    """Do nothing when playbooks may use this bucket as the worker itself.

    Errors: Invalid.
    """
    if not _matches(load(SecretSources).gcs_buckets, bucket):
        raise Invalid(f"bucket {bucket!r}: expected `auth` with a credential, or a bucket that NOETL_GCS_BUCKETS lists")


async def login_of(fields: dict[str, Any], credential: Credential) -> Login:
    """Return who asks a store, by `auth` (or `credential`), `project` and `mount` of a tool or a keychain entry.

    Errors: NotFound for a credential.
    """
    alias = fields.get("auth") or fields.get("credential")
    if isinstance(alias, dict):
        alias = alias.get("credential") or alias.get("alias")
    place = str(fields.get("project") or fields.get("mount") or "")
    if not alias:
        return Login(place=place)
    return Login(fields=dict((await credential(str(alias))).get("data") or {}), place=place)


def _matches(patterns: str, name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, part.strip()) for part in patterns.split(",") if part.strip())


def _variable(sources: SecretSources, name: str) -> str:
    if not sources.allows(name):
        raise Invalid(
            f"variable {name!r} is not opened to playbooks: expected one that NOETL_SECRETS_ENV lists, found another"
        )
    value = os.environ.get(name, "")
    if not value:
        raise NotFound(f"variable {name!r} is not set at this worker")
    return value


def _file(sources: SecretSources, name: str) -> str:
    if not sources.secrets_dir:
        raise Invalid(f"file {name!r} is not opened to playbooks: expected NOETL_SECRETS_DIR, found it not set")
    folder = Path(sources.secrets_dir).resolve()
    # Resolved, so that neither `..` nor a link leads out of the folder.
    path = (folder / name).resolve()
    if not path.is_relative_to(folder):
        raise Invalid(f"file {name!r}: expected a name inside the folder of NOETL_SECRETS_DIR")
    try:
        if path.stat().st_size > SECRET_BYTES_MAX:
            raise TooLarge(f"file {name!r}: expected at most {SECRET_BYTES_MAX} bytes")
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError, ValueError) as exc:
        raise NotFound(
            f"file {name!r}: expected one that can be read, found that it cannot be read: {type(exc).__name__}"
        ) from exc
