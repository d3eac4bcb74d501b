"""Where a program comes from that is not written in the tool itself: `script` of the python and postgres tools."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from noetl_common.errors import (
    ConfigError,
    Invalid,
    NotFound,
    ReferenceNotAvailable,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from noetl_common.store.gcs import read_gcs_object
from noetl_common.store.s3 import S3Login, read_s3_object
from services.worker.tools import Call, dispatch
from services.worker.tools.libraries import library
from services.worker.tools.secret_sources import check_open, login_of
from services.worker.tools.secret_stores import account_of

SOURCE_BYTES_MAX = 4 * 1024 * 1024


async def read_source(call: Call) -> str:
    """Return the text that `script` names: inline, in a file of this machine, behind a URL, or in a bucket.

    Errors: Invalid for a field that is wrong, NotFound for a file or an object, Unavailable for a URL or a bucket that
    gives no text; DependencyMissing names the extra.
    """
    script = call.config["script"]
    source = script.get("source") if isinstance(script, dict) else None
    if not isinstance(source, dict):
        raise Invalid("script: expected a mapping with source.type inline, file, http, s3 or gcs")
    kind = source.get("type", "inline" if "code" in source else "file")
    if kind == "inline":
        code = source.get("code")
        if not isinstance(code, str) or not code.strip():
            raise Invalid("script.source.code: expected a program, found nothing")
        return code
    where = str(script.get("uri") or source.get("path") or source.get("uri") or "")
    if kind == "file":
        return await asyncio.to_thread(_file, Path(where))
    if kind == "http":
        return await _fetched(call, {**source, "url": source.get("url") or source.get("endpoint") or where})
    if kind in ("s3", "gcs", "gs"):
        return await _object(call, {**script, **source}, kind, where)
    raise Invalid(f"script.source.type: expected inline, file, http, s3 or gcs, found {kind!r}")


def _file(path: Path) -> str:
    try:
        if path.stat().st_size > SOURCE_BYTES_MAX:
            raise Invalid(f"script {path}: expected at most {SOURCE_BYTES_MAX} bytes")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise NotFound(
            f"script {path}: cannot be read: expected a UTF-8 file of the worker, found {type(exc).__name__}"
        ) from exc


async def _object(call: Call, source: dict[str, Any], kind: str, where: str) -> str:
    """Return an object of a bucket, by the credential that `source.auth` names."""
    scheme = "s3" if kind == "s3" else "gs"
    key = source.get("key") or source.get("object") or where.lstrip("/")
    place = where if "://" in where else f"{scheme}://{source.get('bucket') or ''}/{key}"
    fields = (await login_of(source, call.credential)).fields or {}
    try:
        if scheme == "s3":
            login = _s3_login(fields)
            raw = await asyncio.to_thread(read_s3_object, login, place, bytes_max=SOURCE_BYTES_MAX)
        else:
            account = account_of(fields)
            if account is None:
                check_open(place.removeprefix("gs://").partition("/")[0])
            library("google.cloud.storage", extra="gcs")
            raw = await asyncio.to_thread(read_gcs_object, account, place, bytes_max=SOURCE_BYTES_MAX)
        return raw.decode()
    except ReferenceNotAvailable as exc:
        raise NotFound(f"script {place}: expected an object, found none ({exc})") from None
    except (ConfigError, Unauthorized, TooLarge) as exc:
        raise Invalid(f"script {place}: {exc}") from None
    except UnicodeDecodeError:
        raise Invalid(f"script {place}: expected UTF-8 text, found other bytes") from None


def _s3_login(fields: dict[str, Any]) -> S3Login:
    spellings = {
        "endpoint": ("endpoint", "endpoint_url", "url"),
        "access_key": ("access_key", "access_key_id", "aws_access_key_id", "key_id"),
        "secret_key": ("secret_key", "secret_access_key", "aws_secret_access_key", "secret"),
        "session_token": ("session_token", "aws_session_token"),
        "region": ("region", "region_name"),
    }
    found = {
        name: next((str(fields[each]) for each in known if fields.get(each)), "") for name, known in spellings.items()
    }
    return S3Login(**found)


async def _fetched(call: Call, source: dict[str, Any]) -> str:
    names = ("url", "method", "headers", "timeout", "auth", "verify_ssl")
    config = {name: source[name] for name in names if source.get(name) is not None}
    outcome = await dispatch(msgspec.structs.replace(call, kind="http", config={**config, "response_type": "text"}))
    if not outcome.ok:
        raise Unavailable(f"script: {(outcome.error or {}).get('message')}")
    text = str(outcome.data["data"])
    if len(text) > SOURCE_BYTES_MAX:
        raise Invalid(f"script {source['url']}: expected at most {SOURCE_BYTES_MAX} characters")
    return text
