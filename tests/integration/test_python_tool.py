"""The python tool in real interpreters: its conventions, and that nothing its code does harms the worker."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from noetl_common.core.outcome import Outcome
from noetl_common.core.scope import Scope
from services.worker.tools import Call, dispatch
from services.worker.tools.python_pool import PythonPool

Run = Callable[..., Awaitable[Outcome]]


class Names:
    """A scope that knows these names."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def as_mapping(self) -> Mapping[str, Any]:
        return self._names


async def no_credential(alias: str) -> dict[str, Any]:
    raise AssertionError(alias)


@pytest.fixture
async def processes() -> AsyncIterator[PythonPool]:
    pool = PythonPool(1, memory_bytes_max=512 * 1024 * 1024)
    yield pool
    await pool.close()


@pytest.fixture
def run(processes: PythonPool) -> Run:
    async def call(
        code: str | None = None, *, timeout_s: float = 30.0, names: Mapping[str, Any] = {}, **given: Any
    ) -> Outcome:
        inputs, loop = given.pop("input", {}), given.pop("globals", {})
        config = {**({"code": code} if code is not None else {}), **given}
        return await dispatch(
            Call(
                kind="python",
                label="calc",
                step="calc",
                execution_id=123456789012345678,
                scope=cast(Scope, Names(names)),
                credential=no_credential,
                config=config,
                input=inputs,
                globals=loop,
                idempotency_key="key-1",
                timeout_s=timeout_s,
                processes=processes,
            )
        )

    return call


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("result = x + 1", 3),
        ("return x * 10", 20),
        ("if x > 1:\n    return {'big': True}\nreturn {'big': False}", {"big": True}),
        ("result = 'global'\nreturn 'returned'", "returned"),
        ("y: int = x\ndef twice():\n    return y * 2\nif y:\n    return twice()", 4),
        ("total = 0\nfor n in range(4):\n    total += n\nreturn total", 6),
        ("def main(x, y=5):\n    return [x, y]", [2, 5]),
        ("def main(**kw):\n    return kw", {"x": 2}),
        ("def main():\n    return 'no parameters'", "no parameters"),
        ("async def main(x):\n    import asyncio\n    await asyncio.sleep(0)\n    return x", 2),
        (
            "def main(input_data, execution_id):\n    return [input_data, execution_id]",
            [{"x": 2}, "123456789012345678"],
        ),
        ("def main():\n    return 1\nresult = 2", 2),
        ("if __name__ == '__main__':\n    result = 'script'", "script"),
        ("result = input_data['x'] + args['x']", 4),
        ("result = [step, execution_id]", ["calc", "123456789012345678"]),
        ("result = 'Grüße, 世界 🎉'", "Grüße, 世界 🎉"),
        (
            "result = {'t': (1, 2), 's': {3}, 'nan': float('nan'), 7: 'key', (1, 2): 'tuple'}",
            {"t": [1, 2], "s": [3], "nan": None, "7": "key", "(1, 2)": "tuple"},
        ),
        (
            "import datetime, decimal\nresult = [datetime.date(2024, 5, 1), decimal.Decimal('1.50')]",
            ["2024-05-01", "1.50"],
        ),
        ("result = 2 ** 70", 2**70),
        ("result = None", None),
        ('result = [{"a": null}, true, false]', [{"a": None}, True, False]),
        ("true = 3\nresult = true", 3),
        ("from dataclasses import dataclass\n@dataclass\nclass P:\n    n: 'int'\nresult = P(3).n", 3),
    ],
)
async def test_the_result_is_what_the_conventions_say(run: Run, code: str, expected: Any) -> None:
    outcome = await run(code, input={"x": 2})
    assert outcome.ok, outcome.error
    assert outcome.data == expected


LIKE_LIBRARIES = """
class Scalar:  # as numpy.float32
    def __init__(self, value): self.value = value
    def tolist(self): return self.value
class Array(list):
    pass
class NdArray:  # as numpy.ndarray
    def __init__(self, *values): self.values = values
    def tolist(self): return list(self.values)
class Frame:  # as pandas.DataFrame
    def to_dict(self, orient="dict"): return [{"a": Scalar(1), 2: None}] if orient == "records" else {"a": {}}
class Table:  # as pyarrow.Table
    def to_pylist(self): return [{"a": 1}]
class Polars:  # as polars.DataFrame
    def to_dicts(self): return [{"b": 2}]
class Mine:
    def to_dict(self): return {"mine": True}
class Odd:
    def tolist(self): return Odd()
    def __str__(self): return "odd"
class NaTType:
    pass
class Plain:
    def __str__(self): return "plain"
"""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Plain()", "plain"),
        ("{'n': Scalar(3)}", {"n": 3}),
        ("[Scalar(float('nan')), Scalar(2.5)]", [None, 2.5]),
        ("NdArray(1, Scalar(2), NdArray(3))", [1, 2, [3]]),
        ("{'f': NdArray(float('inf'), Array([1]))}", {"f": [None, [1]]}),
        ("Frame()", [{"a": 1, "2": None}]),
        ("{(1, 2): Frame()}", {"(1, 2)": [{"a": 1, "2": None}]}),
        ("[Table(), Polars(), Mine()]", [[{"a": 1}], [{"b": 2}], {"mine": True}]),
        ("Odd()", "odd"),
        ("[NaTType()]", [None]),
        ("{1.5: {3, 3}, 'b': b'\\xff'}", {"1.5": [3], "b": "/w=="}),
        ("[b'ab', bytearray(b'ab'), memoryview(b'ab')]", ["YWI=", "YWI=", "YWI="]),
    ],
)
async def test_a_result_that_is_no_json_is_its_plain_form_or_its_text(run: Run, value: str, expected: Any) -> None:
    outcome = await run(f"{LIKE_LIBRARIES}\nresult = {value}")
    assert outcome.ok, outcome.error
    assert outcome.data == expected


async def test_an_input_named_like_a_convention_is_the_authors(run: Run) -> None:
    outcome = await run("result = input_data.get('table')", input={"input_data": {"table": "t1"}})
    assert outcome.data == "t1"


async def test_loop_variables_are_there_without_being_inputs(run: Run) -> None:
    outcome = await run(
        "result = [city, _index, _total, loop_index]",
        globals={"city": "Rome", "_index": 1, "_total": 3, "loop_index": 1},
    )
    assert outcome.data == ["Rome", 1, 3, 1]


async def test_context_holds_what_templates_see(run: Run) -> None:
    names = {"fetch": {"rows": [1, 2]}, "limit": 5}
    outcome = await run(
        "result = [context.get('fetch')['rows'], context['limit'], context.get('nothing')]", names=names
    )
    assert outcome.data == [[1, 2], 5, None]
    assert (await run('result = context.get("step_name")', names=names)).data == "calc"
    assert set((await run("result = list(context.keys())", names=names)).data) >= {"fetch", "limit", "execution_id"}


async def test_libs_are_imported_under_their_alias(run: Run) -> None:
    libs = {"m": "math", "dt": {"from": "datetime", "import": "date"}}
    assert (await run("result = [m.floor(2.5), dt(2024, 1, 2).year]", libs=libs)).data == [2, 2024]
    assert (await run("result = 1", libs=["psycopg2-binary"])).data == 1


async def test_a_script_is_run_from_its_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "hello.py"
    path.write_text("def main(name):\n    return f'hello {name}'\n", encoding="utf-8")
    outcome = await run(script={"uri": str(path), "source": {"type": "file"}}, input={"name": "you"})
    assert outcome.data == "hello you"
    missing = await run(script={"uri": str(tmp_path / "gone.py"), "source": {"type": "file"}})
    assert missing.error is not None and "gone.py" in missing.error["message"]
    inline = await run(script={"source": {"type": "inline", "code": "result = 4"}})
    assert inline.data == 4


async def test_what_raises_is_an_error_with_the_lines_of_the_code(run: Run) -> None:
    outcome = await run("x = 1\n\ndef inner():\n    raise ValueError('no such patient')\n\ninner()")
    assert outcome.error is not None
    assert outcome.error["kind"] == "exception" and outcome.error["message"] == "ValueError: no such patient"
    assert outcome.error["line"] == 4
    assert outcome.py["traceback"] == [
        "line 6, in the code: inner()",
        "line 4, in inner: raise ValueError('no such patient')",
    ]


async def test_lines_are_right_in_code_that_returns(run: Run) -> None:
    outcome = await run("a = 1\nif a > 5:\n    return 2\nassert a == 3, 'a is wrong'")
    assert outcome.error is not None
    assert outcome.error["message"] == "AssertionError: a is wrong" and outcome.error["line"] == 4


async def test_code_that_does_not_compile_names_the_line(run: Run) -> None:
    outcome = await run("x = 1\ny = = 2")
    assert outcome.error is not None and outcome.error["kind"] == "syntax"
    assert outcome.error["line"] == 2 and "line 2" in outcome.error["message"]


async def test_an_argument_of_main_that_nobody_gives_is_named(run: Run) -> None:
    outcome = await run("def main(patient):\n    return patient", input={"x": 1})
    assert outcome.error is not None and "'patient'" in outcome.error["message"]


async def test_a_tool_that_prints_100_mb_neither_blocks_nor_grows(run: Run) -> None:
    outcome = await run(
        "import sys\n"
        "for _ in range(100):\n    sys.stdout.write('x' * 1_000_000)\nprint('e', file=sys.stderr)\nresult = 1\n"
    )
    assert outcome.ok and outcome.data == 1
    assert len(outcome.py["stdout"]) < 70_000 and "[truncated: 65536 of 100000000 bytes" in outcome.py["stdout"]
    assert outcome.py["stderr"] == "e\n"


async def test_a_tool_that_never_returns_is_killed_and_the_next_one_runs(run: Run) -> None:
    outcome = await run("while True: pass", timeout_s=0.5)
    assert outcome.error is not None and outcome.error["kind"] == "timeout" and "0.5 s" in outcome.error["message"]
    assert (await run("result = 'alive'")).data == "alive"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("import os\nos._exit(3)", "code 3"),
    ],
)
async def test_a_tool_whose_process_ends_is_an_error_that_says_how(run: Run, code: str, said: str) -> None:
    outcome = await run(code)
    assert outcome.error is not None and outcome.error["kind"] == "process" and said in outcome.error["message"]
    assert (await run("result = 1")).data == 1


async def test_exit_is_an_error_and_not_the_end_of_the_process(run: Run) -> None:
    outcome = await run("import sys\nsys.exit(2)")
    assert outcome.error is not None and "exit(2)" in outcome.error["message"]


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def until_ended(pid: int) -> None:
    # A killed process lets go of its memory a moment before it counts as dead.
    deadline = time.monotonic() + 2.0
    while is_running(pid):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


FORK = """
import os, time
def leave():
    pid = os.fork()
    if pid == 0:
        os.setsid()
        time.sleep(600)
        os._exit(0)
    return pid
"""


async def test_forks_left_behind_are_killed_with_the_task(run: Run) -> None:
    outcome = await run(FORK + "result = leave()")
    assert outcome.ok
    await until_ended(outcome.data)


async def test_forks_of_a_task_that_is_killed_end_too(run: Run, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    outcome = await run(
        FORK + f"pid = leave()\nopen({str(note)!r}, 'w').write(str(pid))\ntime.sleep(600)", timeout_s=1.0
    )
    assert outcome.error is not None and outcome.error["kind"] == "timeout"
    await until_ended(int(note.read_text(encoding="ascii")))


async def test_a_fork_that_returns_into_the_task_answers_nothing(run: Run) -> None:
    outcome = await run(
        "import os\npid = os.fork()\nif pid:\n    os.waitpid(pid, 0)\nresult = 'parent' if pid else 'child'"
    )
    assert outcome.data == "parent"
    assert (await run("result = 2")).data == 2


async def test_memory_has_a_limit(run: Run) -> None:
    outcome = await run("hog = bytearray(1024 * 1024 * 1024)")
    assert outcome.error is not None and outcome.error["kind"] == "memory" and "536870912" in outcome.error["message"]
    assert (await run("result = 1")).data == 1


async def test_a_result_of_10_mb_comes_back_whole(run: Run) -> None:
    outcome = await run("result = [{'i': i, 'text': 'x' * 1000} for i in range(10_000)]")
    assert len(outcome.data) == 10_000 and outcome.data[-1] == {"i": 9999, "text": "x" * 1000}


async def test_a_result_over_the_limit_is_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.worker.tools.python_pool.RESULT_BYTES_MAX", 1000)
    outcome = await run("result = 'x' * 2000")
    assert outcome.error is not None and outcome.error["kind"] == "result" and "1000" in outcome.error["message"]


async def test_a_result_that_contains_itself_is_an_error(run: Run) -> None:
    outcome = await run("result = []\nresult.append(result)")
    assert outcome.error is not None and not outcome.ok


async def test_an_input_of_10_mb_goes_in_whole(run: Run) -> None:
    assert (await run("result = len(text)", input={"text": "x" * 10_000_000})).data == 10_000_000


async def test_the_environment_is_minimal_and_ends_with_the_task(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
    outcome = await run("import os\nos.environ['LEFT'] = '1'\nresult = dict(os.environ)", env={"REGION": "eu"})
    assert outcome.data["REGION"] == "eu" and outcome.data["NOETL_IDEMPOTENCY_KEY"] == "key-1"
    assert "DATABASE_URL" not in outcome.data
    after = await run("import os\nresult = [os.environ.get('LEFT'), os.environ.get('REGION')]")
    assert after.data == [None, None]


async def test_names_of_one_task_are_not_there_in_the_next(run: Run) -> None:
    assert (await run("secret = 42\nresult = 1")).ok
    assert (await run("result = 'secret' in globals()")).data is False


OPEN_FILES = """
import os
result = []
for number in os.listdir("/proc/self/fd"):
    path = f"/proc/self/fd/{number}"
    if os.path.exists(path) or os.path.islink(path):
        result.append(os.readlink(path))
"""


async def test_the_process_inherits_no_open_files(run: Run) -> None:
    outcome = await run(OPEN_FILES)
    assert len(outcome.data) == 4, outcome.data  # its three standard streams and the socket to the worker


async def test_a_cancelled_call_kills_its_process(run: Run, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    call = asyncio.create_task(
        cast(Any, run(f"import os, time\nopen({str(note)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"))
    )
    deadline = time.monotonic() + 20
    while not (note.exists() and note.read_text(encoding="ascii")):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    pid = int(note.read_text(encoding="ascii"))
    assert not is_running(pid)
    assert (await run("result = 1")).data == 1


async def test_the_same_process_serves_one_task_after_another(run: Run) -> None:
    pids = {(await run("import os\nresult = os.getpid()")).data for _ in range(3)}
    assert len(pids) == 1 and os.getpid() not in pids


async def test_a_thread_left_behind_retires_the_process(run: Run) -> None:
    start = "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
    code = f"import os, threading, time\n{start}\nresult = os.getpid()"
    first = (await run(code)).data
    assert (await run("import os\nresult = os.getpid()")).data != first
    assert not is_running(first)
