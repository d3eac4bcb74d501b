"""Where a worker reads secrets of its own: variables and files that the operator has opened to playbooks."""

import asyncio
import fnmatch
import os
from pathlib import Path
from typing import Annotated, Any

import msgspec

from noetl_common.config import env, load
from noetl_common.errors import DependencyMissing, Invalid, NotFound, TooLarge

SECRET_BYTES_MAX = 64 * 1024
# {provider: the extra that would bring it}
ELSEWHERE = {
    "gcp": "gcp",
    "google": "gcp",
    "gcp_secret_manager": "gcp",
    "google_id_token": "gcp",
    "vault": "vault",
    "hashicorp": "vault",
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


class SecretSources(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator opens to the secrets tool and to keychain entries of kind secrets."""

    secrets_env: SecretsEnv = ""
    secrets_dir: SecretsDir = ""

    def allows(self, variable: str) -> bool:
        """Return whether playbooks may read this variable."""
        patterns = (part.strip() for part in self.secrets_env.split(","))
        return any(fnmatch.fnmatchcase(variable, pattern) for pattern in patterns if pattern)


async def read_secret(provider: Any, name: Any) -> str:
    """Return one secret of provider `env` or `file`.

    Errors: Invalid for a provider or a name that is none, or one that is not opened; NotFound when there is nothing;
    DependencyMissing names the extra of a provider that is not installed.
    """
    if not isinstance(name, str) or not name:
        raise Invalid(f"expected the name of a secret, found {type(name).__name__}")
    kind = str(provider or "env").lower()
    sources = load(SecretSources)
    if kind == "env":
        return _variable(sources, name)
    if kind == "file":
        return await asyncio.to_thread(_file, sources, name)
    if kind in ELSEWHERE:
        raise missing_extra(kind)
    raise Invalid(f"provider: expected env or file, found {kind!r}")


def missing_extra(kind: str) -> DependencyMissing:
    """Return the error for a provider that this release does not have."""
    extra = ELSEWHERE[kind]
    return DependencyMissing(
        f"{kind!r} is not available in this release (it will come as noetl[{extra}]); expected env or file"
    )


def _variable(sources: SecretSources, name: str) -> str:
    if not sources.allows(name):
        raise Invalid(f"variable {name!r} is not opened to playbooks; expected one that NOETL_SECRETS_ENV lists")
    value = os.environ.get(name, "")
    if not value:
        raise NotFound(f"variable {name!r} is not set at this worker")
    return value


def _file(sources: SecretSources, name: str) -> str:
    if not sources.secrets_dir:
        raise Invalid(f"file {name!r} is not opened to playbooks; expected one in the folder of NOETL_SECRETS_DIR")
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
        raise NotFound(f"file {name!r}: cannot be read: {type(exc).__name__}") from exc
