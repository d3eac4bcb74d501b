"""Tools that stream: chunks in order, one at a time, in little memory, whatever happens in the middle."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noetl_common.core.outcome import Outcome
from noetl_common.core.scope import Scope
from noetl_common.core.values import Value
from noetl_common.errors import TooLarge
from services.worker.tools import Call, dispatch, duckdb, postgres
from services.worker.tools.python_pool import PythonPool
from tests.running import wait_until

COUNT_10_000 = "SELECT n AS id, repeat('x', 100) AS text FROM generate_series(1, 10000) AS t (n)"


@pytest.fixture(autouse=True)
async def _closed_afterwards() -> AsyncIterator[None]:
    yield
    await duckdb.close()
    await postgres.close()


@pytest.fixture
async def processes() -> AsyncIterator[PythonPool]:
    pool = PythonPool(1, memory_bytes_max=512 * 1024 * 1024)
    yield pool
    await pool.close()


class Sink:
    """Takes chunks; `most` of them were under way at a time. It may fail, or stop at, the chunk of a number."""

    def __init__(self, *, keeps: bool = True) -> None:
        self.chunks: list[Any] = []
        self.keeps = keeps
        self.under_way = self.most = self.count = 0
        self.fails_at = -1
        self.loses_at = -1
        self.gate = asyncio.Event()
        self.gate.set()

    async def take(self, value: Any) -> None:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await self.gate.wait()
        self.under_way -= 1
        if self.count == self.fails_at:
            raise TooLarge("expected at most 2 chunks, found more; raise `chunk_size`")
        if self.count == self.loses_at:
            raise asyncio.CancelledError("lost")
        self.count += 1
        if self.keeps:
            self.chunks.append(value)


async def run(kind: str, sink: Sink, *, processes: PythonPool | None = None, **config: Any) -> Outcome:
    async def credential(alias: str) -> dict[str, Any]:
        raise AssertionError(alias)

    return await dispatch(
        Call(
            kind=kind,
            label="load",
            step="load",
            execution_id=7,
            scope=Scope(load=lambda ref, key: None, workload=Value({}), ctx={}, results={}),
            credential=credential,
            config=config,
            idempotency_key="key-1",
            timeout_s=config.pop("timeout_s", 30.0),
            processes=processes,
            partial=sink.take,
        )
    )


@pytest.mark.parametrize("kind", ["postgres", "duckdb"])
@pytest.mark.parametrize(("size", "chunks"), [(1000, 10), (3000, 4), (20_000, 1), ("2500", 4)])
async def test_rows_come_in_chunks_in_their_order(dsn: str, kind: str, size: Any, chunks: int) -> None:
    sink = Sink()
    outcome = await run(kind, sink, **place(kind, dsn), command=COUNT_10_000, chunk_size=size)
    assert outcome.data == {"row_count": 10_000, "chunks": chunks, "columns": ["id", "text"]}, outcome.error
    assert [row["id"] for chunk in sink.chunks for row in chunk["rows"]] == list(range(1, 10_001))
    assert [chunk["chunk_index"] for chunk in sink.chunks] == list(range(chunks))
    for chunk in sink.chunks:
        assert chunk["columns"] == ["id", "text"] and chunk["row_count"] == len(chunk["rows"]) <= int(size)
    assert sink.most == 1


@pytest.mark.parametrize("kind", ["postgres", "duckdb"])
async def test_a_script_streams_its_last_statement_and_is_one_transaction(dsn: str, kind: str) -> None:
    sink = Sink()
    script = "CREATE TABLE s (a int); INSERT INTO s SELECT n FROM generate_series(1, 5) AS t (n); SELECT a FROM s"
    outcome = await run(kind, sink, **place(kind, dsn), command=script, chunk_size=2)
    assert outcome.data == {"row_count": 5, "chunks": 3, "columns": ["a"]}, outcome.error
    assert [chunk["rows"] for chunk in sink.chunks] == [[{"a": 1}, {"a": 2}], [{"a": 3}, {"a": 4}], [{"a": 5}]]


@pytest.mark.parametrize("kind", ["postgres", "duckdb"])
async def test_no_rows_are_no_chunk(dsn: str, kind: str) -> None:
    sink = Sink()
    outcome = await run(kind, sink, **place(kind, dsn), command="SELECT 1 AS a WHERE false", chunk_size=2)
    assert outcome.data == {"row_count": 0, "chunks": 0, "columns": ["a"]}, outcome.error
    assert sink.chunks == []


@pytest.mark.parametrize("kind", ["postgres", "duckdb"])
@pytest.mark.parametrize(
    ("command", "size", "said"),
    [
        ("CREATE TABLE s (a int)", 2, "expected a query as the last statement, found CREATE"),
        ("SELECT 1", 0, "chunk_size: expected rows from 1 to 100000, found 0"),
        ("SELECT 1", "many", "chunk_size: expected rows from 1 to 100000, found 'many'"),
        ("SELECT 1; SELECT nothing FROM here", 5, "(statement 2 of 2, line 1)"),
    ],
)
async def test_what_cannot_be_streamed_is_refused(dsn: str, kind: str, command: str, size: Any, said: str) -> None:
    sink = Sink()
    outcome = await run(kind, sink, **place(kind, dsn), command=command, chunk_size=size)
    assert outcome.error is not None and said in outcome.error["message"], outcome.error
    assert sink.chunks == []


async def test_a_failure_in_the_middle_is_the_tools_and_undoes_its_script(dsn: str) -> None:
    sink = Sink()
    script = "CREATE TABLE s (a int); SELECT 1 / (3 - n) AS a FROM generate_series(1, 9) AS t (n)"
    outcome = await run("postgres", sink, dsn=dsn, command=script, chunk_size=1)
    assert outcome.error is not None and outcome.error["pg_code"] == "22012"
    assert len(sink.chunks) == 2
    there = await run("postgres", sink, dsn=dsn, command="SELECT to_regclass('s') AS s")
    assert there.data["rows"] == [{"s": None}]


@pytest.mark.parametrize("kind", ["postgres", "duckdb"])
async def test_a_refused_chunk_fails_the_tool_with_its_message(dsn: str, kind: str) -> None:
    sink = Sink()
    sink.fails_at = 2
    outcome = await run(kind, sink, **place(kind, dsn), command=COUNT_10_000, chunk_size=100)
    assert outcome.error is not None and "raise `chunk_size`" in outcome.error["message"]
    assert sink.count == 2


@pytest.mark.parametrize("kind", ["postgres", "duckdb"])
async def test_a_chunk_of_a_lost_command_ends_it(dsn: str, kind: str) -> None:
    sink = Sink()
    sink.loses_at = 1
    with pytest.raises(asyncio.CancelledError):
        await run(kind, sink, **place(kind, dsn), command=COUNT_10_000, chunk_size=100)
    again = Sink()
    outcome = await run(kind, again, **place(kind, dsn), command="SELECT 1 AS a", chunk_size=1)
    assert outcome.ok and len(again.chunks) == 1


@pytest.mark.parametrize("kind", ["postgres", "duckdb"])
async def test_200_mb_of_rows_need_the_memory_of_two_chunks(dsn: str, kind: str) -> None:
    # A chunk: 2,000 rows of 1,000 characters, 2 MB of text and as much again for the objects around it.
    command = "SELECT n AS id, repeat('x', 1000) AS text FROM generate_series(1, 200000) AS t (n)"
    sink = Sink(keeps=False)
    await run(kind, sink, **place(kind, dsn), command="SELECT 1 AS a", chunk_size=1)
    before_kb = resident_kb()
    tracemalloc.start()
    peaks: list[int] = []

    async def take(value: Any) -> None:
        peaks.append(resident_kb())

    sink.take = take  # type: ignore[method-assign]
    outcome = await run(kind, sink, **place(kind, dsn), command=command, chunk_size=2000)
    _now, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert outcome.ok and outcome.data["chunks"] == 100, outcome.error
    assert peak_bytes < 12_000_000, f"{peak_bytes / 1e6:.1f} MB of Python objects"
    # What the libraries hold beside Python: far from the 200 MB that all of it would be.
    assert max(peaks) - before_kb < 100_000, f"{(max(peaks) - before_kb) / 1e3:.0f} MB more than before"


@pytest.mark.parametrize(
    ("code", "chunks", "result"),
    [
        ("for n in range(3):\n    emit({'n': n})\nresult = 'done'", [{"n": 0}, {"n": 1}, {"n": 2}], "done"),
        ("emit(1)\nemit(None)", [1, None], {"chunks": 2}),
        ("result = (n * n for n in range(4))", [0, 1, 4, 9], {"chunks": 4}),
        ("def main(upto):\n    for n in range(upto):\n        yield [n]\n    return upto", [[0], [1], [2]], 3),
        ("async def main(upto):\n    for n in range(upto):\n        yield n", [0, 1, 2], {"chunks": 3}),
        ("def main(upto, emit):\n    emit('given')\n    return {'upto': upto}", ["given"], {"upto": 3}),
        ("def main():\n    yield from ()", [], {"chunks": 0}),
        (
            "result = {'list': [n for n in range(2)], 'lazy': (n for n in range(2))}",
            [],
            {"list": [0, 1], "lazy": [0, 1]},
        ),
        ("for n in range(2):\n    yield n\nreturn 'end'", [0, 1], "end"),
    ],
)
async def test_python_streams_what_it_emits_or_yields(
    processes: PythonPool, code: str, chunks: list[Any], result: Any
) -> None:
    sink = Sink()
    call = Call(
        kind="python",
        label="calc",
        step="calc",
        execution_id=7,
        scope=Scope(load=lambda ref, key: None, workload=Value({}), ctx={}, results={}),
        credential=lambda alias: asyncio.sleep(0, {}),
        config={"code": code},
        input={"upto": 3},
        processes=processes,
        partial=sink.take,
    )
    outcome = await dispatch(call)
    assert (sink.chunks, outcome.data) == (chunks, result), outcome.error


async def test_python_waits_until_its_chunk_is_recorded(processes: PythonPool) -> None:
    sink = Sink()
    sink.gate.clear()
    task = asyncio.create_task(
        run("python", sink, processes=processes, code="for n in range(50):\n    emit('x' * 100_000)\nresult = 50")
    )
    await wait_until(lambda: sink.under_way == 1, what="the first chunk")
    await asyncio.sleep(0.2)
    assert (sink.count, sink.under_way) == (0, 1)
    sink.gate.set()
    assert (await task).data == 50
    assert (sink.count, sink.most) == (50, 1)


async def test_python_that_fails_after_chunks_says_where(processes: PythonPool) -> None:
    sink = Sink()
    outcome = await run(
        "python", sink, processes=processes, code="def main():\n    yield 1\n    raise ValueError('no')"
    )
    assert outcome.error is not None and (outcome.error["kind"], outcome.error["line"]) == ("exception", 3)
    assert sink.chunks == [1]
    assert (await run("python", sink, processes=processes, code="result = 2")).data == 2


@pytest.mark.parametrize(
    "code",
    ["while True:\n    emit(1)", "import itertools\nresult = (n for n in itertools.count())"],
)
async def test_a_refused_or_lost_chunk_ends_the_code(processes: PythonPool, code: str) -> None:
    refused, lost = Sink(), Sink()
    refused.fails_at = lost.loses_at = 3
    with pytest.raises(TooLarge):
        await run("python", refused, processes=processes, code=code)
    with pytest.raises(asyncio.CancelledError):
        await run("python", lost, processes=processes, code=code)
    assert (await run("python", Sink(), processes=processes, code="result = 2")).data == 2


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("emit('x' * (65 * 1024 * 1024))", "emit: expected at most"),
        ("import os\nif os.fork() == 0:\n    try:\n        emit(1)\n    finally:\n        os._exit(0)\nos.wait()", ""),
        ("while True:\n    emit(1)", "did not end within"),
    ],
)
async def test_code_that_streams_beyond_its_limits_is_stopped(processes: PythonPool, code: str, said: str) -> None:
    sink = Sink(keeps=False)
    outcome = await run("python", sink, processes=processes, code=code, timeout_s=3.0)
    assert outcome.ok if not said else said in str(outcome.error), outcome
    assert sink.count == 0 or "while" in code


async def test_threads_of_the_code_take_turns(processes: PythonPool) -> None:
    code = (
        "import threading\n"
        "def work(name):\n    for n in range(20):\n        emit([name, n])\n"
        "threads = [threading.Thread(target=work, args=(name,)) for name in 'abc']\n"
        "[t.start() for t in threads]\n[t.join() for t in threads]\nresult = 'ok'"
    )
    sink = Sink()
    assert (await run("python", sink, processes=processes, code=code)).data == "ok"
    for name in "abc":
        assert [n for who, n in sink.chunks if who == name] == list(range(20))


def place(kind: str, dsn: str) -> dict[str, Any]:
    return {"dsn": dsn} if kind == "postgres" else {}


def resident_kb() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
