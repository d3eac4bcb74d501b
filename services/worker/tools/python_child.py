"""The process that runs python tools: reads tasks from a socket, runs one after the other, answers each.

Runs as `python -I python_child.py <fd>`, imports nothing of the product, and trusts nothing that it runs: whatever the
code prints, forks or breaks, one frame goes back for each task that came, or the process is gone and its parent sees
that. A frame is the lengths of header and body (two big-endian 8-byte numbers), the header as JSON, the body as bytes.

From the parent come programs (`program`, with what all its tasks share), tasks (`run`, naming their program) and
`go`. Many tasks may wait in the socket. Each is answered as soon as it ends, so that a process that dies has taken
nothing with it but the task it was at. It waits for `go`, with tasks that came meanwhile put aside, after an answer
that says `output` (something was written, and the parent tells outputs apart by reading them in between), and after
each chunk (`partial` in its header) of what a task streams, until that is recorded.
"""

import ast
import base64
import builtins
import contextlib
import ctypes
import datetime
import fcntl
import importlib
import inspect
import json
import linecache
import math
import os
import resource
import signal
import socket
import struct
import sys
import tempfile
import termios
import threading
import time
import traceback
import types
from collections import deque
from typing import Any

LENGTHS = struct.Struct("!QQ")
PROGRAMS_MAX = 256  # kept; the parent counts along, and sends one again that was dropped
READ_BYTES = 256 * 1024
NOTHING = b"\0\0\0\0"
# A list or object that a template prints into code is JSON: with these it is Python too.
JSON_WORDS = {"true": True, "false": False, "null": None}
# How a value says what it is in plain terms, and what it may say.
PLAIN_FORMS: tuple[tuple[str, dict[str, str]], ...] = (
    *(("tolist", {}), ("to_list", {}), ("to_pylist", {}), ("to_dicts", {})),
    *(("to_dict", {"orient": "records"}), ("to_dict", {})),
)
PLAIN_TYPES = frozenset((bool, int, float, str, list, dict, type(None), datetime.datetime, datetime.date))
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

Program = dict[str, Any]  # code, and what else all its tasks have in common


def main(descriptor: int) -> None:
    """Serve tasks from the socket `descriptor` until it closes."""
    _settle_in()
    peer = socket.socket(fileno=descriptor)
    peer.set_inheritable(False)
    frames, programs = Frames(peer), dict[int, Program]()
    environ, folder, own = dict(os.environb), os.getcwd(), os.getpid()
    while (frame := frames.next()) is not None:
        if "program" in frame:
            if len(programs) >= PROGRAMS_MAX:
                programs.pop(next(iter(programs)))
            programs[frame["program"]] = frame
            continue
        began = time.perf_counter()
        program = programs[frame["run"]]
        os.environ["NOETL_IDEMPOTENCY_KEY"] = frame["key"]
        os.environ.update(program["env"])
        emitter = Emitter(peer, frames, limit=program["result_bytes_max"])
        header, body = run_task(program, frame, emitter)
        emitter.close()
        if os.getpid() != own:
            os._exit(0)  # a fork of the author's that came back here: it has no answer to give
        _end_leftovers()
        os.environ.pop("NOETL_IDEMPOTENCY_KEY", None)
        if dict(os.environb) != environ:
            os.environb.clear()
            os.environb.update(environ)
        with contextlib.suppress(OSError):
            os.chdir(folder)
        header["recycle"] = threading.active_count() > 1 or header.get("kind") == "memory"
        header["output"] = _has_output()
        header["seconds"] = time.perf_counter() - began
        peer.sendall(_framed(header, body))
        if header["recycle"]:
            frames.hold()
        elif header["output"] and not frames.go():
            return


class Frames:
    """What the parent sends, read in large pieces."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._read = bytearray()
        self._aside: deque[dict[str, Any]] = deque()

    def next(self) -> dict[str, Any] | None:
        """Return the next program or task; None at the end."""
        return self._aside.popleft() if self._aside else self._frame()

    def go(self) -> bool:
        """Wait for `go`; return False when the parent is gone, or has given this process up."""
        while (frame := self._frame()) is not None:
            if "go" in frame:
                return True
            self._aside.append(frame)
        return False

    def hold(self) -> None:
        """Begin nothing more, and wait for the end."""
        while self._frame() is not None:
            pass
        os._exit(0)

    def _frame(self) -> dict[str, Any] | None:
        head = self._exactly(LENGTHS.size)
        text = self._exactly(LENGTHS.unpack(head)[0]) if head is not None else None
        frame: dict[str, Any] | None = json.loads(text) if text is not None else None
        return frame

    def _exactly(self, count: int) -> bytes | None:
        while len(self._read) < count:
            part = self._peer.recv(READ_BYTES)
            if not part:
                return None
            self._read += part
        wanted = bytes(self._read[:count])
        del self._read[:count]
        return wanted


class Emitter:
    """`emit` of one task: sends a chunk and returns when it is recorded. Threads of the code take turns."""

    def __init__(self, peer: socket.socket, frames: Frames, *, limit: int) -> None:
        self._peer = peer
        self._frames = frames
        self._limit = limit
        self._own = os.getpid()
        self._turn = threading.Lock()
        self._is_open = True
        self.chunks = 0

    def emit(self, value: Any) -> None:
        """Hand on one chunk of the result."""
        if os.getpid() != self._own:
            raise RuntimeError("emit: expected the process of the task, found a fork of it")
        body = _as_json(value)
        if len(body) > self._limit:
            raise ValueError(f"emit: expected at most {self._limit} bytes of JSON, found {len(body)}")
        with self._turn:
            if not self._is_open:
                raise RuntimeError("emit: the task has ended")
            self._peer.sendall(_framed({"partial": True}, body))
            if not self._frames.go():
                os._exit(0)  # the worker is gone, or has given this command up
            self.chunks += 1

    def drained(self, value: Any) -> Any:
        """Return what a generator returns, each value that it yields emitted; anything else as it is."""
        if inspect.isasyncgen(value):
            import asyncio

            asyncio.run(self._drain_async(value))
            return {"chunks": self.chunks}
        if not inspect.isgenerator(value):
            return value
        while True:
            try:
                chunk = next(value)
            except StopIteration as end:
                return {"chunks": self.chunks} if end.value is None else end.value
            self.emit(chunk)

    def close(self) -> None:
        """Refuse what threads left behind still want to emit."""
        with self._turn:
            self._is_open = False

    async def _drain_async(self, value: Any) -> None:
        async for chunk in value:
            self.emit(chunk)


def run_task(program: Program, task: dict[str, Any], emitter: Emitter) -> tuple[dict[str, Any], bytes]:
    """Return (header, result as JSON) of one task; whatever the code raises becomes the header's error."""
    filename, limit = program["name"], program["result_bytes_max"]
    try:
        if program["cwd"]:
            os.chdir(program["cwd"])
        present, value = _run_code(program, task, emitter)
        value = emitter.drained(value)
        if emitter.chunks and not present:
            present, value = True, {"chunks": emitter.chunks}
        body = _as_json(value)
        if len(body) > limit:
            return _refusal("result", f"result: expected at most {limit} bytes of JSON, found {len(body)}"), b""
        return {"ok": True, "present": present}, body
    except MemoryError:
        return _refusal("memory", f"out of memory: the limit is {program['memory_bytes_max']} bytes"), b""
    except SystemExit as exc:
        return _refusal("exception", f"the code called exit({exc.code!r})", exception="SystemExit"), b""
    except SyntaxError as exc:
        return _syntax(exc, filename), b""
    except BaseException as exc:  # anything at all: the author's code is not ours to judge, and the process goes on
        return _raised(exc, filename), b""
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        _restore_streams()


def _settle_in() -> None:
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    memory = int(os.environ.pop("NOETL_PYTHON_LIMIT_BYTES", "0"))
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _restore_streams()
    tempfile.tempdir = os.getcwd()


def _restore_streams() -> None:
    # A task may have closed or replaced them; the next one gets fresh ones on the same descriptors.
    for name, number in (("stdout", 1), ("stderr", 2)):
        if name in _streams and _streams[name] is getattr(sys, name, None) and not _streams[name].closed:
            continue
        stream = open(number, "w", encoding="utf-8", errors="replace", buffering=1 << 16, closefd=False)  # noqa: SIM115
        _streams[name] = stream
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


_streams: dict[str, Any] = {}


def _has_output() -> bool:
    """Return whether something stands in one of the pipes; the parent leaves a byte of what was written since `go`."""
    found = False
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            found = found or fcntl.ioctl(descriptor, termios.FIONREAD, NOTHING) != NOTHING
    return found


def _run_code(program: Program, task: dict[str, Any], emitter: Emitter) -> tuple[bool, Any]:
    inputs, variables = task["input"], task["variables"]
    code, wrapped, has_main = _compiled(program)
    linecache.cache[program["name"]] = program["lines"]
    module = types.ModuleType("__main__")
    # Without a main of its own the code runs like a script; with one, we are the caller.
    module.__name__ = "noetl_task" if has_main else "__main__"
    sys.modules["__main__"] = sys.modules["noetl_task"] = module
    names = module.__dict__
    sys.argv = [program["name"], *program["argv"]]
    given = {
        **JSON_WORDS,
        "emit": emitter.emit,
        "input_data": inputs,
        "args": inputs,
        "context": task["context"],
        "variables": variables,
        "execution_id": program["execution_id"],
        "step": program["step"],
        **variables,
        **inputs,
    }
    names.update(_imports(program["libs"]))
    names.update(given)
    names["__builtins__"] = builtins
    exec(code, names)
    returned = names["__noetl_body__"]() if wrapped else None
    if returned is not None:
        return True, returned
    # With a main, a `result` counts only if the code has set it: not None, and not merely the input of that name.
    found = names.get("result")
    is_set = "result" in names and not (has_main and (found is None or found is inputs.get("result")))
    if is_set:
        return True, found
    if has_main and callable(names.get("main")):
        return True, _call_main(names["main"], inputs, given)
    return wrapped, None


def _compiled(program: Program) -> tuple[types.CodeType, bool, bool]:
    """Return (code, whether it stands in a function, whether it has a main), compiled at the first task."""
    if "compiled" not in program:
        source, filename = program["code"], program["name"]
        program["lines"] = (len(source), None, source.splitlines(keepends=True), filename)
        tree = ast.parse(source, filename)
        has_main = any(isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.name == "main" for n in tree.body)
        wrapped = any(_returns(node) for node in tree.body)
        if wrapped:
            tree = _in_function(tree, filename)
        program["compiled"] = compile(tree, filename, "exec"), wrapped, has_main
    compiled: tuple[types.CodeType, bool, bool] = program["compiled"]
    return compiled


def _returns(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return False
    return isinstance(node, ast.Return) or any(_returns(child) for child in ast.iter_child_nodes(node))


class _PlainAssignments(ast.NodeTransformer):
    """`x: int = 1` becomes `x = 1`: a global name may not be annotated inside a function."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign(targets=[node.target], value=node.value), node)

    def _left_alone(self, node: ast.AST) -> ast.AST:
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _left_alone


def _in_function(tree: ast.Module, filename: str) -> ast.Module:
    # The body becomes a function so that `return` works; its names stay global so that everything else does too.
    body: list[ast.stmt] = [_PlainAssignments().visit(node) for node in tree.body]
    function = ast.parse("def __noetl_body__():\n    pass", filename).body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = body
    module = ast.fix_missing_locations(ast.Module(body=[function], type_ignores=[]))
    made = compile(module, filename, "exec")
    inner = next(const for const in made.co_consts if isinstance(const, types.CodeType))
    assigned = sorted({*inner.co_varnames, *inner.co_cellvars} - {".0"})
    declared = {name for node in body for name in _declared(node)}
    names = [name for name in assigned if name.isidentifier() and name not in declared]
    if names:
        function.body = [ast.copy_location(ast.Global(names=names), body[0]), *body]
    return ast.fix_missing_locations(module)


def _declared(node: ast.AST) -> list[str]:
    return node.names if isinstance(node, ast.Global) else []


def _imports(libs: Any) -> dict[str, Any]:
    # {alias: module} or {alias: {from: module, import: name}}; a list names distributions and imports nothing.
    names: dict[str, Any] = {}
    for alias, what in libs.items() if isinstance(libs, dict) else ():
        if isinstance(what, dict):
            module = importlib.import_module(str(what.get("from") or what.get("import")))
            names[alias] = getattr(module, str(what["import"])) if what.get("from") and "import" in what else module
        else:
            names[alias] = importlib.import_module(str(what or alias))
    return names


def _call_main(function: Any, inputs: dict[str, Any], given: dict[str, Any]) -> Any:
    positional: list[Any] = []
    named: dict[str, Any] = {}
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            named.update({name: value for name, value in inputs.items() if name not in named})
        elif parameter.kind is parameter.VAR_POSITIONAL:
            continue
        elif parameter.name in given:
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(given[parameter.name])
            else:
                named[parameter.name] = given[parameter.name]
        elif parameter.default is parameter.empty:
            raise TypeError(f"main() wants {parameter.name!r}, which is not among the inputs {sorted(inputs)}")
    value = function(*positional, **named)
    if inspect.iscoroutine(value):
        import asyncio

        return asyncio.run(value)
    return value


def _as_json(value: Any) -> bytes:
    try:
        text = _STRICT.encode(value)
    except (TypeError, ValueError):
        # Keys that are no strings, or NaN: rare, so only then is the value walked.
        text = _LENIENT.encode(_walked(value, 0))
    return text.encode("utf-8", errors="replace")


def _plain(value: Any) -> Any:
    """Return what stands in JSON for a value that JSON does not know: its own plain form if it has one, else its text.

    Bytes are base64, as those of databases. Arrays and columns (NumPy, pandas, Polars, Arrow) become lists, frames and
    tables lists of rows; they are told by their methods, for nothing is imported here.
    """
    if isinstance(value, set | frozenset | types.GeneratorType | range | type({}.keys()) | type({}.values())):
        return list(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if type(value).__name__ in ("NaTType", "NAType"):
        return None  # pandas: there is no value
    for method, given in () if isinstance(value, type) else PLAIN_FORMS:
        with contextlib.suppress(AttributeError, TypeError):
            found = getattr(value, method)(**given)
            if type(found) in PLAIN_TYPES:
                return found
    return str(value)


_STRICT = json.JSONEncoder(default=_plain, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
_LENIENT = json.JSONEncoder(default=_plain, ensure_ascii=False, separators=(",", ":"))
_HEADER = json.JSONEncoder(default=str, ensure_ascii=False, separators=(",", ":"))


def _walked(value: Any, depth: int) -> Any:
    if depth > 200:
        raise ValueError("result: expected at most 200 levels of nesting")
    if isinstance(value, dict):
        return {_key(key): _walked(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_walked(item, depth + 1) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is not None and not isinstance(value, str | int | float):
        return _walked(_plain(value), depth + 1)
    return value


def _key(key: Any) -> Any:
    return key if isinstance(key, str | int | bool | None) else str(key)


def _refusal(kind: str, message: str, **more: Any) -> dict[str, Any]:
    return {"ok": False, "kind": kind, "message": message, **more}


def _syntax(exc: SyntaxError, filename: str) -> dict[str, Any]:
    if exc.filename != filename:
        return _raised(exc, filename)
    shown = (exc.text or "").strip()[:200]
    message = f"line {exc.lineno}: {exc.msg}" + (f": {shown}" if shown else "")
    return _refusal("syntax", message, exception=type(exc).__name__, line=exc.lineno)


def _raised(exc: BaseException, filename: str) -> dict[str, Any]:
    frames = [frame for frame in traceback.extract_tb(exc.__traceback__) if frame.filename == filename]
    lines = [f"line {frame.lineno}, in {_scope(frame.name)}: {(frame.line or '').strip()[:200]}" for frame in frames]
    try:
        said = str(exc)[:4000]
    except Exception as unsayable:
        said = f"(its message raised {type(unsayable).__name__})"
    message = f"{type(exc).__name__}: {said}" if said else type(exc).__name__
    if isinstance(exc, AssertionError) and not said and frames:
        message = f"AssertionError: {(frames[-1].line or '').strip()[:200]}"
    line = frames[-1].lineno if frames else None
    return _refusal("exception", message, exception=type(exc).__name__, traceback=lines[-50:], line=line)


def _scope(name: str) -> str:
    return "the code" if name in ("<module>", "__noetl_body__") else name


def _end_leftovers() -> None:
    # As the subreaper, this process inherits every descendant whose parent is gone, so its own children are all of
    # them, a layer at a time.
    for _ in range(100):
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return  # there is none: the usual case, in one call
        children: list[int] = []
        with contextlib.suppress(OSError):
            for thread in os.listdir("/proc/self/task"):
                with open(f"/proc/self/task/{thread}/children", encoding="ascii") as listing:
                    children += map(int, listing.read().split())
        if not children:
            return
        for child in children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


def _framed(header: dict[str, Any], body: bytes) -> bytes:
    text = _HEADER.encode(header).encode("utf-8", errors="replace")
    return LENGTHS.pack(len(text), len(body)) + text + body


if __name__ == "__main__":
    main(int(sys.argv[1]))
