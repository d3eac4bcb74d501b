"""DBOS: workflows whose steps are committed to Postgres one by one, in the process of the client."""

import asyncio

from dbos import DBOS
from telling import DATABASE_URL, in_flight, told

DBOS(config={"name": "bench", "system_database_url": DATABASE_URL, "run_admin_server": False, "log_level": "ERROR"})


@DBOS.step()
async def item(n: int) -> dict[str, int]:
    """Do what an item does."""
    return {"item": n, "square": n * n}


@DBOS.workflow()
async def fan_out(count: int) -> int:
    """Do all items at once, then join."""
    return len(await asyncio.gather(*(item(n) for n in range(count))))


@DBOS.workflow()
async def in_turn(count: int) -> int:
    """Do one step after another."""
    for n in range(count):
        await item(n)
    return count


@DBOS.workflow()
async def one_step() -> dict[str, int]:
    """Do one step."""
    return await item(1)


async def fanout(count: int) -> None:
    """W1."""
    assert await fan_out(count) == count


async def chain(count: int) -> None:
    """W2."""
    await in_turn(count)


async def starts(count: int) -> list[float]:
    """W3."""

    async def one() -> None:
        handle = await DBOS.start_workflow_async(one_step)
        await handle.get_result()

    return await in_flight(count, 32, one)


async def main() -> None:
    """Run the works."""
    DBOS.launch()
    try:
        await told(fanout=fanout, chain=chain, starts=starts)
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(main())
