"""Quick python tasks go to an interpreter many at a time; each is still alone with its result, errors and limits."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.worker.tools import python_pool
from services.worker.tools.python_pool import PythonPool
from services.worker.tools.python_process import PythonProcess, Reply, Task
from tests.running import wait_until

CODE = """
import os, sys, time
with open(log, "a") as file:
    file.write(f"{n}\\n")
if n == bad:
    if how == "dies":
        os._exit(3)
    if how == "hangs":
        time.sleep(600)
    if how == "raises":
        raise ValueError(n)
    if how == "leaves a thread":
        import threading
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
if how == "prints" and n % 3 == 0:
    print("text", n)
    os.write(2, b"raw %d" % n)
result = [n, os.environ["NOETL_IDEMPOTENCY_KEY"], os.getpid()]
"""
COUNT = 120
BAD = 70


class Crowd:
    """Tasks of one program, started at the same moment; `most` of them stood in one interpreter."""

    def __init__(self, pool: PythonPool, log: Path, *, code: str = CODE) -> None:
        self.pool = pool
        self.log = log
        self.code = code
        self.most = 0

    async def one(self, n: int, *, how: str = "", bad: int = BAD, timeout_s: float = 60.0) -> Reply:
        program: dict[str, Any] = {"name": "<step 'calc'>", "code": self.code, "execution_id": "1", "step": "calc"}
        program |= {"libs": None, "cwd": None, "argv": [], "env": {}}
        given = {"n": n, "how": how, "bad": bad, "log": str(self.log)}
        task = {"input": given, "variables": {}, "context": {}, "key": f"key-{n}"}
        return await self.pool.run(program, task, timeout_s=timeout_s)

    def begin(self, how: str, **more: Any) -> list["asyncio.Task[Reply]"]:
        return [asyncio.create_task(self.one(n, how=how, **more)) for n in range(COUNT)]

    async def all(self, how: str, **more: Any) -> list[Reply]:
        return await asyncio.gather(*self.begin(how, **more))

    def ran(self) -> Counter[int]:
        return Counter(map(int, self.log.read_text(encoding="ascii").split()))


def count_tasks(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    take = PythonProcess.take

    def counted(process: PythonProcess, tasks: list[Task]) -> None:
        take(process, tasks)
        crowd.most = max(crowd.most, len(process.tasks))

    monkeypatch.setattr(PythonProcess, "take", counted)


@pytest.fixture
async def crowd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Crowd]:
    monkeypatch.setattr(python_pool, "AHEAD_S", 2.0)  # so that a slow machine, too, makes batches
    pool = PythonPool(1, memory_bytes_max=512 * 1024 * 1024)
    made = Crowd(pool, tmp_path / "log")
    count_tasks(made, monkeypatch)
    await made.one(-1)  # from here on the pace is known
    made.log.unlink()
    yield made
    await pool.close()


def good(replies: list[Reply], *, but: int = -1) -> None:
    for n, reply in enumerate(replies):
        if n != but:
            assert reply.header.get("ok"), (n, reply)
            assert msgspec.json.decode(reply.body)[:2] == [n, f"key-{n}"]


async def test_many_stand_in_one_interpreter_and_each_gets_its_own_answer(crowd: Crowd) -> None:
    replies = await crowd.all("")
    good(replies)
    assert crowd.ran() == Counter(range(COUNT)) and crowd.most > 10
    assert len({msgspec.json.decode(reply.body)[2] for reply in replies}) == 1


async def test_a_process_that_dies_takes_only_the_task_it_was_at(crowd: Crowd) -> None:
    replies = await crowd.all("dies")
    good(replies, but=BAD)
    assert replies[BAD].ended == "exited with code 3"
    assert crowd.ran() == Counter(range(COUNT)) and crowd.most > 10


async def test_a_task_that_hangs_is_killed_alone(crowd: Crowd) -> None:
    replies = await crowd.all("hangs", timeout_s=3.0)
    good(replies, but=BAD)
    assert replies[BAD].timed_out
    assert crowd.ran() == Counter(range(COUNT))


async def test_an_exception_is_its_tasks_own(crowd: Crowd) -> None:
    replies = await crowd.all("raises")
    good(replies, but=BAD)
    assert replies[BAD].header["message"] == f"ValueError: {BAD}"
    assert crowd.ran() == Counter(range(COUNT))


async def test_a_thread_left_behind_moves_the_rest_to_another_process(crowd: Crowd) -> None:
    replies = await crowd.all("leaves a thread")
    good(replies)
    assert crowd.ran() == Counter(range(COUNT))
    assert len({msgspec.json.decode(reply.body)[2] for reply in replies}) == 2


async def test_what_a_task_writes_is_its_own(crowd: Crowd) -> None:
    replies = await crowd.all("prints")
    good(replies)
    for n, reply in enumerate(replies):
        expected = (f"text {n}\n", f"raw {n}") if n % 3 == 0 else ("", "")
        assert (reply.stdout, reply.stderr) == expected


async def test_one_that_is_cancelled_is_killed_and_those_behind_it_run(crowd: Crowd) -> None:
    tasks = crowd.begin("hangs", bad=5)
    waiting = tasks[60]
    await wait_until(lambda: crowd.log.exists() and bool(crowd.ran()[5]), what="the task that hangs")
    waiting.cancel()
    tasks[5].cancel()
    replies = await asyncio.gather(*tasks, return_exceptions=True)
    for n, reply in enumerate(replies):
        assert isinstance(reply, asyncio.CancelledError if n in (5, 60) else Reply), (n, reply)
    assert crowd.ran() == Counter(n for n in range(COUNT) if n != 60)


async def test_slow_tasks_are_dealt_out_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = PythonPool(2, memory_bytes_max=512 * 1024 * 1024)
    slow = Crowd(pool, tmp_path / "log", code="import time, os\ntime.sleep(0.2)\nresult = [n, '', os.getpid()]")
    count_tasks(slow, monkeypatch)
    replies = await asyncio.gather(*(slow.one(n) for n in range(6)))
    await pool.close()
    pids = Counter(msgspec.json.decode(reply.body)[2] for reply in replies)
    assert len(pids) == 2 and max(pids.values()) <= 4 and slow.most == 1


async def test_programs_take_turns(crowd: Crowd, tmp_path: Path) -> None:
    order: list[str] = []
    other = Crowd(crowd.pool, tmp_path / "other", code=CODE + "\n# another program")

    async def noted(name: str, one: Any) -> None:
        await one
        order.append(name)

    many = [noted("many", crowd.one(n)) for n in range(400)]
    await asyncio.gather(*many, noted("lone", other.one(0)))
    assert order.index("lone") < 200
