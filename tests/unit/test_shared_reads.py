"""Reads that callers share: few, and never older than the question."""

import asyncio

import pytest

from services.ingest.shared_reads import SharedReads


class Source:
    """Something that is read slowly, and changes."""

    def __init__(self) -> None:
        self.value = 0
        self.reads = 0
        self.gate = asyncio.Event()

    async def read(self) -> int:
        self.reads += 1
        found = self.value
        await self.gate.wait()
        return found


async def test_a_crowd_costs_two_reads_and_gets_what_was_there_when_it_asked() -> None:
    source, reads = Source(), SharedReads[int]()
    first = asyncio.create_task(reads.read("a", source.read))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    source.value = 1  # behind the first read, before the others ask
    crowd = [asyncio.create_task(reads.read("a", source.read)) for _ in range(20)]
    await asyncio.sleep(0)
    source.gate.set()
    assert await first == 0
    assert await asyncio.gather(*crowd) == [1] * 20
    assert source.reads == 2


async def test_different_questions_do_not_wait_for_each_other() -> None:
    reads = SharedReads[str]()
    stuck = asyncio.create_task(reads.read("a", lambda: asyncio.sleep(60, "never")))
    await asyncio.sleep(0)
    assert await asyncio.wait_for(reads.read("b", lambda: asyncio.sleep(0, "b")), 1) == "b"
    stuck.cancel()


async def test_an_error_reaches_all_that_share_the_read_and_none_after() -> None:
    async def fail() -> int:
        await asyncio.sleep(0)
        raise ValueError("away")

    reads = SharedReads[int]()
    found = await asyncio.gather(*(reads.read("a", fail) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(one, ValueError) for one in found)
    assert await reads.read("a", lambda: asyncio.sleep(0, 1)) == 1


async def test_who_gives_up_waiting_does_not_end_the_read_of_the_others() -> None:
    source, reads = Source(), SharedReads[int]()
    impatient = asyncio.create_task(reads.read("a", source.read))
    patient = asyncio.create_task(reads.read("a", source.read))
    await asyncio.sleep(0)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    source.gate.set()
    assert await patient == 0 and source.reads == 1
