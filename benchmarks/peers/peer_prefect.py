"""Prefect: its server on SQLite, a flow in the process of the client, mapped tasks on threads.

On Postgres it needs the extension pg_trgm, which the embedded Postgres does not have.
"""

import asyncio
import os
import socket
import subprocess
import sys
import time
import urllib.request
from typing import Any

from telling import FOLDER, told

READY_TIMEOUT_S = 120.0
STARTS_MOST = 100


def server() -> "tuple[subprocess.Popen[bytes], str]":
    """Start the server and return it with its URL, once it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(
        PREFECT_HOME=FOLDER,
        PREFECT_SERVER_ANALYTICS_ENABLED="false",
        PREFECT_LOGGING_LEVEL="ERROR",
        PREFECT_API_URL=f"http://127.0.0.1:{port}/api",
    )
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with open(os.path.join(FOLDER, "server.log"), "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=2):
                return process, f"http://127.0.0.1:{port}/api"
        except OSError:
            time.sleep(0.2)
    process.kill()
    with open(os.path.join(FOLDER, "server.log"), encoding="utf-8") as said:
        sys.exit(f"the server did not start: {said.read()[-400:]}")


def works() -> dict[str, Any]:
    """Return the works; prefect reads its settings when it is imported, so that comes after the server."""
    from prefect import flow, task

    @task
    def item(n: int) -> dict[str, int]:
        return {"item": n, "square": n * n}

    @flow
    def fan_out(count: int) -> int:
        return len(item.map(list(range(count))).result())

    @flow
    def in_turn(count: int) -> int:
        for n in range(count):
            item(n)
        return count

    @flow
    def one_step() -> dict[str, int]:
        return item(1)

    def timed() -> float:
        began_s = time.perf_counter()
        one_step()
        return (time.perf_counter() - began_s) * 1000

    async def fanout(count: int) -> None:
        await asyncio.to_thread(fan_out, count)

    async def chain(count: int) -> None:
        await asyncio.to_thread(in_turn, count)

    async def starts(count: int) -> list[float]:
        from concurrent.futures import ThreadPoolExecutor

        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(32) as threads:
            return await asyncio.gather(*(loop.run_in_executor(threads, timed) for _ in range(min(count, STARTS_MOST))))

    return {"fanout": fanout, "chain": chain, "starts": starts}


if __name__ == "__main__":
    running, _url = server()
    try:
        asyncio.run(told(**works()))
    finally:
        running.terminate()
        running.wait()
