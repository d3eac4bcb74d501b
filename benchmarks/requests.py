"""What a request costs: a worker's POST through all of ingest's HTTP, up to the handler and back, without Postgres.

python -m benchmarks.requests [--seconds 5] [--connections 32] prints a table and ends with one JSON line. A process
serves the whole table of routes; the handler of claims answers at once that nothing waits. The floor is the same
server under an application that answers `{}`.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import msgspec
import uvloop
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from benchmarks.http_client import Connection
from benchmarks.proc import family_ms
from benchmarks.report import Figures, medians, parser_of, report
from noetl_common import process
from noetl_common.wire import Claim, Claimed
from services.ingest.asgi import build_asgi
from services.ingest.auth import Guard
from services.ingest.endpoints import Api
from services.ingest.requests import answer, read_json
from services.ingest.routes import ENDPOINTS

PATH = "/api/commands/claim"
ASKED = Claim(worker_id="worker-0123456789ab", max=64)
WARM_S = 0.5


def main() -> int:
    """Return the exit code: 0, or 1 when a run failed."""
    parser = parser_of("requests", "What a request costs.")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--serve", choices=sorted(APPLICATIONS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        return process.run("requests", lambda stop: served(APPLICATIONS[options.serve], stop))
    return report("requests", lambda: medians([measured(options) for _ in range(options.runs)]), vars(options))


def measured(options: argparse.Namespace) -> Figures:
    """Return the figures of one round: requests a second and processor time of one, with those of the floor."""
    rate, cpu_us = timed("ingest", options)
    floor_rate, floor_cpu_us = timed("floor", options)
    return {
        "requests_per_s": round(rate, 1),
        "cpu_us_per_request": round(cpu_us, 1),
        "floor_requests_per_s": round(floor_rate, 1),
        "floor_cpu_us_per_request": round(floor_cpu_us, 1),
        "ratio_to_floor": round(floor_cpu_us / cpu_us, 3),
    }


def timed(application: str, options: argparse.Namespace) -> tuple[float, float]:
    """Return requests a second, and us of processor time that the server took for one."""
    with serving(application) as (pid, url):
        return uvloop.run(driven(pid, url, options))


async def driven(pid: int, url: str, options: argparse.Namespace) -> tuple[float, float]:
    """Return what `timed` does, of requests sent over each connection as soon as the last is answered."""
    answered, is_over = 0, False

    async def keep_asking() -> None:
        nonlocal answered
        async with Connection(url) as connection:
            while not is_over:
                await connection.post(PATH, ASKED)
                answered += 1

    asking = [asyncio.create_task(keep_asking()) for _ in range(options.connections)]
    await asyncio.sleep(WARM_S)
    began_s, began_ms, before = time.perf_counter(), family_ms(pid), answered
    await asyncio.sleep(options.seconds)
    count = answered - before
    rate, cpu_us = count / (time.perf_counter() - began_s), (family_ms(pid) - began_ms) * 1000 / count
    is_over = True
    await asyncio.gather(*asking)
    return rate, cpu_us


@contextmanager
def serving(application: str) -> Iterator[tuple[int, str]]:
    """Yield the pid and the URL of a server in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.requests", "--serve", application]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            started = next(line for line in child.stdout if b'"service.started"' in line)
            yield child.pid, f"http://127.0.0.1:{msgspec.json.decode(started)['port']}"
        finally:
            child.terminate()


async def served(application: ASGIApp, stop: asyncio.Event) -> None:
    """Serve `application` on any free port until `stop`."""
    await process.serve(process.Service(name="requests", asgi=application), stop)


def ingest() -> ASGIApp:
    """Return ingest's application with a handler of claims that has nothing to give."""

    async def claim(_api: Api, request: Request) -> Response:
        await read_json(request, Claim)
        return answer(Claimed(commands=[], contexts={}, results=[], lease_s=15.0))

    class Guarded(msgspec.Struct):
        guard: Guard

    endpoints = [msgspec.structs.replace(one, handler=claim) if one.path == PATH else one for one in ENDPOINTS]
    return build_asgi(cast(Api, Guarded(Guard(None, local_only=True))), endpoints)


async def floor(_scope: Scope, receive: Receive, send: Send) -> None:
    """Answer `{}` to anything."""
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"{}"})


APPLICATIONS: dict[str, ASGIApp] = {"ingest": ingest(), "floor": floor}


if __name__ == "__main__":
    sys.exit(main())
