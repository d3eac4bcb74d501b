"""Procrastinate: jobs in Postgres, one worker process of 32 at once. It has no join: the client asks the job table."""

import asyncio
import sys

import procrastinate
import psycopg
from telling import DATABASE_URL, SQL, Ends, in_flight, told, until, worker

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=DATABASE_URL))


@app.task(name="item", queue="bench")
async def item(n: int) -> int:
    """Do what an item does."""
    return n * n


@app.task(name="link", queue="bench")
async def link(left: int) -> None:
    """Have the next link of a chain follow."""
    if left > 1:
        await link.defer_async(left=left - 1)


async def work() -> None:
    """Be the worker."""
    async with app.open_async():
        await app.run_worker_async(
            queues=["bench"], concurrency=32, fetch_job_polling_interval=0.1, install_signal_handlers=False
        )


async def main() -> None:
    """Be the client."""
    async with app.open_async(), await psycopg.AsyncConnection.connect(DATABASE_URL, autocommit=True) as conn:
        await app.schema_manager.apply_schema_async()

        async def done(ids: list[int]) -> list[int]:
            rows = await conn.execute(SQL["procrastinate_done"], {"ids": ids})
            return [row[0] for row in await rows.fetchall()]

        async def succeeded() -> int:
            return (await (await conn.execute(SQL["procrastinate_count"])).fetchone() or (0,))[0]

        async def fanout(count: int) -> None:
            await conn.execute(SQL["procrastinate_clear"])
            await item.batch_defer_async(*({"n": n} for n in range(count)))
            await until(succeeded, count)

        async def chain(count: int) -> None:
            await conn.execute(SQL["procrastinate_clear"])
            await link.defer_async(left=count)
            await until(succeeded, count)

        async def starts(count: int) -> list[float]:
            ends = Ends(done)

            async def one() -> None:
                await ends.wait(await item.defer_async(n=1))

            async with ends.looking():
                return await in_flight(count, 32, one)

        with worker():
            await told(fanout=fanout, chain=chain, starts=starts)


if __name__ == "__main__":
    asyncio.run(work() if sys.argv[1:] == ["worker"] else main())
