"""The python tool: gathers what the code may see, has a warm interpreter run it, reads the answer."""

import re
import time
from typing import Any

import msgspec

from noetl_common.core.outcome import Outcome
from noetl_common.core.results import plain
from noetl_common.errors import Invalid, NotFound, Unavailable
from services.worker.tools import Call, failed
from services.worker.tools.python_process import Reply
from services.worker.tools.script_source import read_source

MENTION = re.compile(r"\bcontext\b(?:\s*(?:\.\s*get\s*\(|\[)\s*([\"'])(?P<name>[^\"']+)\1)?")


async def run(call: Call) -> Outcome:
    """Return the outcome of the code in `code` or `script`.

    The code streams by `emit(value)`, or by a generator as its result: each value is a chunk.
    Errors: as outcomes of kind config, syntax, exception, timeout, memory, process or result.
    """
    try:
        code = await read_source(call) if call.config.get("script") else _code(call.config)
    except Unavailable as exc:
        return failed("connection", str(exc), code=exc.code, retryable=True)
    except (Invalid, NotFound) as exc:
        return failed("config", str(exc), code=exc.code)
    assert call.processes is not None, "the worker that runs python tools has a pool"
    program, task = _program(call, code), _task(call, code)
    began = time.monotonic()
    reply = await call.processes.run(program, task, timeout_s=call.timeout_s, partial=call.partial)
    outcome = _outcome(reply, call)
    outcome.meta["duration_ms"] = round((time.monotonic() - began) * 1000)
    return outcome


def _program(call: Call, code: str) -> dict[str, Any]:
    """Return what is the same for all items of a loop."""
    environ = {str(name): str(value) for name, value in (call.config.get("env") or {}).items() if value is not None}
    return {
        "name": f"<step {call.step!r}>" if call.label == call.step else f"<step {call.step!r}, task {call.label!r}>",
        "code": code,
        "execution_id": str(call.execution_id),
        "step": call.step,
        "libs": call.config.get("libs"),
        "cwd": call.config.get("cwd"),
        "argv": call.config.get("argv") or [],
        "env": environ,
    }


def _task(call: Call, code: str) -> dict[str, Any]:
    return {
        "input": call.input,
        "variables": call.globals,
        "context": _context(call, code),
        "key": call.idempotency_key,
    }


def _code(config: dict[str, Any]) -> str:
    code = config.get("code")
    if not isinstance(code, str) or not code.strip():
        raise Invalid("code: expected code, or `script` with a source, found neither")
    return code


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
        message = (
            f"timeout: expected an end, found that it did not end within {call.timeout_s:g} s; its process was killed"
        )
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
