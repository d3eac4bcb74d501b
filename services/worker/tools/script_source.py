"""Where a program comes from that is not written in the tool itself: `script` of the python and postgres tools."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from noetl_common.errors import Invalid, NotFound, Unavailable
from services.worker.tools import Call, dispatch

SOURCE_BYTES_MAX = 4 * 1024 * 1024


async def read_source(call: Call) -> str:
    """Return the text that `script` names: inline, in a file of this machine, or behind a URL.

    Errors: Invalid for a field that is wrong, NotFound for a file, Unavailable for a URL that gives no text.
    """
    script = call.config["script"]
    source = script.get("source") if isinstance(script, dict) else None
    if not isinstance(source, dict):
        raise Invalid("script: expected a mapping with source.type inline, file or http")
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
    raise Invalid(f"script.source.type: expected inline, file or http, found {kind!r}")


def _file(path: Path) -> str:
    try:
        if path.stat().st_size > SOURCE_BYTES_MAX:
            raise Invalid(f"script {path}: expected at most {SOURCE_BYTES_MAX} bytes")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise NotFound(f"script {path}: cannot be read: {type(exc).__name__}") from exc


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
