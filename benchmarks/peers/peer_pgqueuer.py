"""PgQueuer: jobs in Postgres, one worker process, batches of 50. It has no join: the client asks the log of jobs."""

import asyncio
import sys
from datetime import timedelta

import asyncpg
from pgqueuer import AsyncpgDriver, PgQueuer, Queries
from pgqueuer.models import Job
from telling import DATABASE_URL, SQL, Ends, in_flight, told, until, worker


async def work() -> None:
    """Be the worker."""
    driver = AsyncpgDriver(await asyncpg.connect(DATABASE_URL))
    queue = PgQueuer(driver)
    queries = Queries(driver)

    @queue.entrypoint("item")
    async def item(job: Job) -> None:
        int(job.payload or b"0")

    @queue.entrypoint("link")
    async def link(job: Job) -> None:
        left = int(job.payload or b"0")
        if left > 1:
            await queries.enqueue("link", str(left - 1).encode())

    await queue.run(batch_size=50, dequeue_timeout=timedelta(seconds=0.1))


async def main() -> None:
    """Be the client."""
    conn = await asyncpg.connect(DATABASE_URL)
    queries = Queries(AsyncpgDriver(conn))
    await queries.install()
    watch = await asyncpg.connect(DATABASE_URL)

    async def succeeded() -> int:
        return int(await watch.fetchval(SQL["pgqueuer_count"]))

    async def done(ids: list[int]) -> list[int]:
        rows = await watch.fetch(SQL["pgqueuer_done"], ids)
        return [row["job_id"] for row in rows]

    async def fanout(count: int) -> None:
        await conn.execute(SQL["pgqueuer_clear"])
        await queries.enqueue(["item"] * count, [str(n).encode() for n in range(count)], [0] * count)
        await until(succeeded, count)

    async def chain(count: int) -> None:
        await conn.execute(SQL["pgqueuer_clear"])
        await queries.enqueue("link", str(count).encode())
        await until(succeeded, count)

    async def starts(count: int) -> list[float]:
        ends = Ends(done)
        lock = asyncio.Lock()  # one connection of the driver, as its docs have it

        async def one() -> None:
            async with lock:
                [job_id] = await queries.enqueue("item", b"1")
            await ends.wait(job_id)

        async with ends.looking():
            return await in_flight(count, 32, one)

    with worker():
        await told(fanout=fanout, chain=chain, starts=starts)


if __name__ == "__main__":
    asyncio.run(work() if sys.argv[1:] == ["worker"] else main())
