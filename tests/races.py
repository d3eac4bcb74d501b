"""Every race in every order: python -m tests.races [part of a name]."""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests import race_specs, race_specs_commands
from tests.isolation import Arena, Spec, connect, every_order
from tests.servers import clone, drop, shared_postgres

SPECS: tuple[Spec, ...] = (*race_specs.SPECS, *race_specs_commands.SPECS)
SESSIONS_MAX = 3


@asynccontextmanager
async def arena(dsn: str) -> AsyncIterator[Arena]:
    """Lend the connections of a race on a database of one's own."""
    async with AsyncExitStack() as stack:
        control, *others = [await stack.enter_async_context(await connect(dsn)) for _ in range(SESSIONS_MAX + 1)]
        yield Arena(control, others)


async def run_orders(ring: Arena, spec: Spec, orders: Iterable[Sequence[str]]) -> int:
    """Run these orders of a race; return how many. Errors: AssertionError for an outcome that must not be."""
    count = 0
    for order in orders:
        await ring.run(spec, order)
        count += 1
    return count


async def _run_all(dsn: str, part: str) -> int:
    total = 0
    async with arena(dsn) as ring:
        for spec in SPECS:
            if part in spec.name:
                began_s = time.monotonic()
                count = await run_orders(ring, spec, every_order(spec))
                total += count
                print(f"{count:>6} orders in {time.monotonic() - began_s:>5.1f} s  {spec.name}", flush=True)
    return total


def main() -> int:
    """Run every order of every race; return 0, or raise at the first that ends as it must not."""
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    with tempfile.TemporaryDirectory() as folder, shared_postgres(Path(folder)) as server:
        url = clone(server)
        try:
            print(f"{asyncio.run(_run_all(url, part)):>6} orders of {len(SPECS)} races, each as it may end")
        finally:
            drop(server, url)
    return 0


if __name__ == "__main__":
    sys.exit(main())
