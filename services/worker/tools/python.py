"""The python tool: gathers what the code may see, has a warm interpreter run it, reads the answer."""

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import msgspec

from noetl_common.core.outcome import Outcome
from noetl_common.core.results import plain
from noetl_common.errors import Invalid, NotFound
from services.worker.tools import Call, failed
from services.worker.tools.python_pool import Reply

SOURCE_BYTES_MAX = 4 * 1024 * 1024
MENTION = re.compile(r"\bcontext\b(?:\s*(?:\.\s*get\s*\(|\[)\s*([\"'])(?P<name>[^\"']+)\1)?")


async def run(call: Call) -> Outcome:
    """Return the outcome of the code in `code` or `script`.

    Errors: as outcomes of kind config, syntax, exception, timeout, memory, process or result.
    """
    try:
        code = await asyncio.to_thread(_source, call.config) if call.config.get("script") else _code(call.config)
    except (Invalid, NotFound) as exc:
        return failed("config", str(exc), code=exc.code)
    assert call.processes is not None, "the worker that runs python tools has a pool"
    task = _task(call, code)
    began = time.monotonic()
    reply = await call.processes.run(task, timeout_s=call.timeout_s)
    outcome = _outcome(reply, call)
    outcome.meta["duration_ms"] = round((time.monotonic() - began) * 1000)
    return outcome


def _task(call: Call, code: str) -> dict[str, Any]:
    environ = {str(name): str(value) for name, value in (call.config.get("env") or {}).items() if value is not None}
    return {
        "name": f"<step {call.step!r}>" if call.label == call.step else f"<step {call.step!r}, task {call.label!r}>",
        "code": code,
        "input": call.input,
        "globals": call.globals,
        "context": _context(call, code),
        "variables": call.globals,
        "execution_id": str(call.execution_id),
        "step": call.step,
        "libs": call.config.get("libs"),
        "cwd": call.config.get("cwd"),
        "env": {"NOETL_IDEMPOTENCY_KEY": call.idempotency_key, **environ},
    }


def _code(config: dict[str, Any]) -> str:
    code = config.get("code")
    if not isinstance(code, str) or not code.strip():
        raise Invalid("the python tool wants `code`, or `script` with a source")
    return code


def _source(config: dict[str, Any]) -> str:
    script = config["script"]
    source = script.get("source") if isinstance(script, dict) else None
    if not isinstance(source, dict):
        raise Invalid("script: expected a mapping with source.type inline or file")
    kind = source.get("type", "inline" if "code" in source else "file")
    if kind == "inline":
        return _code(source)
    if kind != "file":
        raise Invalid(f"script.source.type: expected inline or file, found {kind!r}")
    path = Path(str(script.get("uri") or source.get("path") or source.get("uri") or ""))
    try:
        if path.stat().st_size > SOURCE_BYTES_MAX:
            raise Invalid(f"script {path}: expected at most {SOURCE_BYTES_MAX} bytes")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise NotFound(f"script {path}: cannot be read: {type(exc).__name__}") from exc


def _context(call: Call, code: str) -> dict[str, Any]:
    # `context` is everything a template could see; shipping it whole would load every payload of the run, so code
    # that only asks for certain names gets those, and code that never mentions it gets none.
    extra = {
        "args": call.input,
        "variables": call.globals,
        "execution_id": str(call.execution_id),
        "step": call.step,
        "step_name": call.step,
    }
    mentions = list(MENTION.finditer(code))
    if not mentions:
        return {}
    visible = call.scope.as_mapping()
    wanted = {mention["name"] for mention in mentions}
    names = list(visible) if None in wanted else [name for name in visible if name in wanted]
    return {**extra, **call.input, **{name: plain(visible[name]) for name in names}}


def _outcome(reply: Reply, call: Call) -> Outcome:
    seen: dict[str, Any] = {}
    if reply.stdout:
        seen["stdout"] = reply.stdout
    if reply.stderr:
        seen["stderr"] = reply.stderr
    header = reply.header
    if reply.timed_out:
        message = f"the code did not end within {call.timeout_s:g} s; its process was killed"
        outcome = failed("timeout", message, retryable=True)
    elif reply.ended:
        outcome = failed("process", f"the process that ran the code {reply.ended}")
    elif not header.get("ok"):
        more = {key: header[key] for key in ("exception", "line") if header.get(key) is not None}
        outcome = failed(header["kind"], header["message"], **more)
        seen |= {key: header[key] for key in ("exception", "traceback") if header.get(key)}
    elif header["present"]:
        outcome = _decoded(reply.body)
    else:
        outcome = Outcome(data={"status": "success", "stdout": reply.stdout, "stderr": reply.stderr})
    outcome.py = seen
    return outcome


def _decoded(body: bytes) -> Outcome:
    try:
        return Outcome(data=msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError) as exc:
        return failed("result", f"result: not readable as JSON: {exc}")
