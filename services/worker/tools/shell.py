"""The shell tool: commands in a shell of their own, which ends with everything that they started.

The shell is a process group in a folder of its own, with few environment variables, bounded memory and bounded output.
`NOETL_IDEMPOTENCY_KEY` in its environment names the command, the same at every run of it.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from noetl_common.core.outcome import Outcome
from noetl_common.errors import Invalid
from services.worker.tools import Call, failed
from services.worker.tools.processes import FOLDER_PREFIX, INHERITED, MARK, Drain, end_marked

SHELLS_MAX = 32  # at the same time in one worker
SCRIPT_BYTES_MAX = 120 * 1024  # an argument of a process, which Linux limits to 128 KiB
MEMORY_BYTES_DEFAULT = 1024 * 1024 * 1024
MESSAGE_CHARS_MAX = 300
# Sets what a shell cannot say itself, then becomes the shell: limits of memory and cores, an end with the worker's.
LAUNCH = (
    "import ctypes,os,resource as r,sys;"
    "ctypes.CDLL(None).prctl(1,9,0,0,0);"
    "r.setrlimit(r.RLIMIT_AS,(int(sys.argv[1]),)*2);"
    "r.setrlimit(r.RLIMIT_CORE,(0,0));"
    "os.execvp(sys.argv[2],sys.argv[2:])"
)


class Plan(msgspec.Struct, kw_only=True, frozen=True):
    """One script to run. `arguments` are its $1, $2, ..."""

    shell: str
    script: str
    arguments: tuple[str, ...]
    cwd: str | None
    environ: dict[str, str]
    capture: bool
    memory_bytes_max: int


class Finished(msgspec.Struct, kw_only=True):
    """How a script ended: `code` as the shell says it (128 and more: a signal), None when its time was over."""

    code: int | None
    stdout: str
    stderr: str


async def run(call: Call) -> Outcome:
    """Return {exit_code, stdout, stderr} of `command`, or of `cmds` one after the other until one fails.

    Errors: none is raised; error.kind is exit (with exit_code), timeout or config.
    """
    try:
        plan = _plan(call)
    except Invalid as exc:
        return failed("config", f"shell: {exc}", code=exc.code)
    began = time.monotonic()
    try:
        finished = await execute(plan, call.timeout_s)
    except (OSError, ValueError) as exc:
        return failed(
            "config",
            f"shell: expected a shell that can be started, found {plan.shell!r}: {exc}",
            code="SHELL_NOT_STARTED",
        )
    outcome = _outcome(plan, finished, call)
    outcome.meta["duration_ms"] = round((time.monotonic() - began) * 1000)
    return outcome


async def execute(plan: Plan, timeout_s: float) -> Finished:
    """Return how a script ended; when this returns or is cancelled, nothing that it started is left.

    Errors: OSError and ValueError when its shell cannot be started.
    """
    async with _slots():
        return await _execute(plan, timeout_s)


def inherited() -> dict[str, str]:
    """Return the variables of the worker that a script sees."""
    return {name: os.environ[name] for name in INHERITED if name in os.environ}


async def _execute(plan: Plan, timeout_s: float) -> Finished:
    mark = secrets.token_hex(12)
    folder = tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-")
    outputs = [Drain(), Drain()]
    process: asyncio.subprocess.Process | None = None
    code: int | None = None
    is_over = False
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", LAUNCH, str(plan.memory_bytes_max)),
                *(plan.shell, "-c", plan.script, plan.shell, *plan.arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=outputs[0].write_end,
                stderr=outputs[1].write_end,
                start_new_session=True,
                cwd=plan.cwd or folder,
                env={"LANG": "C.UTF-8", "HOME": folder, "TMPDIR": folder, **plan.environ, MARK: mark},
            )
        finally:
            for output in outputs:
                output.started()
        with contextlib.suppress(TimeoutError):
            code = await asyncio.wait_for(process.wait(), timeout_s)
        await _end(process, mark)
        is_over = True
        stdout, stderr = (output.text() for output in outputs) if plan.capture else ("", "")
        return Finished(code=128 - code if code is not None and code < 0 else code, stdout=stdout, stderr=stderr)
    finally:
        if process is not None and not is_over:
            await asyncio.shield(_end(process, mark))
        for output in outputs:
            output.close()
        shutil.rmtree(folder, ignore_errors=True)


async def _end(process: asyncio.subprocess.Process, mark: str) -> None:
    """Kill the shell's process group, and whatever it started that has left the group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    await asyncio.to_thread(end_marked, mark)


def _plan(call: Call) -> Plan:
    config = call.config
    environ = inherited() | {"NOETL_IDEMPOTENCY_KEY": call.idempotency_key, **_environ(config.get("env"))}
    shell, cwd = config.get("shell") or "sh", config.get("cwd") or None
    for name, value in (("shell", shell), ("cwd", cwd or "")):
        if not isinstance(value, str) or "\0" in value:
            raise Invalid(f"{name}: expected text, found {value!r}")
    if cwd is not None and not os.path.isdir(cwd):
        raise Invalid(f"cwd: expected a folder of the worker's machine, found {cwd!r}")
    if shutil.which(shell) is None:
        raise Invalid(f"shell: expected a shell of the worker's machine, found {shell!r}")
    arguments = config.get("args") or []
    if not isinstance(arguments, list):
        raise Invalid(f"args: expected a list (the script's $1, $2, ...), found {type(arguments).__name__}")
    capture = config.get("capture", True)
    if not isinstance(capture, bool):
        raise Invalid(f"capture: expected true or false, found {capture!r}")
    return Plan(
        shell=shell,
        script=_script(config),
        arguments=tuple(_text(value, f"args[{index}]") for index, value in enumerate(arguments)),
        cwd=cwd,
        environ=environ,
        capture=capture,
        memory_bytes_max=call.processes.memory_bytes_max if call.processes else MEMORY_BYTES_DEFAULT,
    )


def _script(config: dict[str, Any]) -> str:
    given = next((config[name] for name in ("cmds", "command", "cmd") if config.get(name)), None)
    if given is None:
        raise Invalid("expected `cmds` (a list) or `command` with a text, found neither")
    if isinstance(given, list):
        parts = [_text(part, f"cmds[{index}]") for index, part in enumerate(given)]
        # One shell for all, so that what one changes (a folder, a variable) is there for the next.
        script = "\n".join(f"{part}\n__code=$?; [ $__code -eq 0 ] || exit $__code" for part in parts)
    else:
        script = _text(given, "command")
    if not 0 < len(script.encode()) <= SCRIPT_BYTES_MAX:
        raise Invalid(f"command: expected at most {SCRIPT_BYTES_MAX} bytes, found {len(script.encode())}")
    return script


def _environ(given: Any) -> dict[str, str]:
    if given in (None, ""):
        return {}
    if not isinstance(given, dict):
        raise Invalid(f"env: expected a mapping, found {type(given).__name__}")
    if wrong := [name for name in given if not name or "=" in name or "\0" in name]:
        raise Invalid(f"env: expected names of variables, found {wrong[0]!r}")
    return {name: _text(value, f"env.{name}") for name, value in given.items() if value is not None}


def _text(value: Any, where: str) -> str:
    # A template may have rendered to a number or a list; a NUL cannot be passed to a process.
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if "\0" in text:
        raise Invalid(f"{where}: expected text without NUL characters, found one")
    return text


def last_words(text: str, chars_max: int) -> str:
    """Return the end of a text, in whole words: half of one could be half of a secret, which nothing would find."""
    words = " ".join(text.split())
    return words if len(words) <= chars_max else words[-chars_max:].partition(" ")[2]


def _outcome(plan: Plan, finished: Finished, call: Call) -> Outcome:
    data = {"exit_code": finished.code, "stdout": finished.stdout, "stderr": finished.stderr}
    if finished.code == 0:
        return Outcome(data=data)
    if finished.code is None:
        message = (
            f"shell: timeout: expected an end, found it not ended within {call.timeout_s:g} s;"
            " it was killed with all that it started"
        )
        outcome = failed("timeout", message, code="SHELL_TIMEOUT", retryable=True)
    else:
        tail = last_words(finished.stderr, MESSAGE_CHARS_MAX)
        message = f"shell: expected exit code 0, found {finished.code}" + (f": {tail}" if tail else "")
        outcome = failed("exit", message, code="SHELL_EXIT", exit_code=finished.code)
    outcome.data = data
    return outcome


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def _slots() -> asyncio.Semaphore:
    return _by_loop.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(SHELLS_MAX))
