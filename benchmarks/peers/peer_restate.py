"""Restate: its server with a log of its own on disk, and one service process; a fan-out is steps of one handler."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from typing import Any

import httpx
import restate
from telling import FOLDER, in_flight, told

READY_TIMEOUT_S = 60.0
service = restate.Service("bench")


def step(n: int) -> dict[str, int]:
    """Do what an item does."""
    return {"item": n, "square": n * n}


@service.handler()
async def fan_out(ctx: restate.Context, count: int) -> int:
    """Do all items at once, then join."""
    return len(await restate.gather(*(ctx.run_typed(f"item-{n}", step, n=n) for n in range(count))))


@service.handler()
async def in_turn(ctx: restate.Context, count: int) -> int:
    """Do one step after another."""
    for n in range(count):
        await ctx.run_typed(f"step-{n}", step, n=n)
    return count


app = restate.app([service])


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on now."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def register(admin: int, serving: int) -> None:
    """Tell the server of the service, as soon as both answer."""
    body = json.dumps({"uri": f"http://127.0.0.1:{serving}"}).encode()
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        asked = urllib.request.Request(
            f"http://127.0.0.1:{admin}/deployments", data=body, headers={"content-type": "application/json"}
        )
        try:
            urllib.request.urlopen(asked, timeout=5).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)


async def main(ingress: int) -> None:
    """Be the client."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{ingress}", timeout=120, trust_env=False) as client:

        async def call(handler: str, count: int) -> Any:
            answer = await client.post(f"/bench/{handler}", json=count)
            answer.raise_for_status()
            return answer.json()

        async def fanout(count: int) -> None:
            assert await call("fan_out", count) == count

        async def chain(count: int) -> None:
            await call("in_turn", count)

        async def starts(count: int) -> list[float]:
            return await in_flight(count, 32, lambda: call("in_turn", 1))

        await told(fanout=fanout, chain=chain, starts=starts)


if __name__ == "__main__":
    ingress, admin, fabric, serving = free_ports(4)
    environ = {
        **os.environ,
        "RESTATE_BASE_DIR": FOLDER,
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{fabric}",
        "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{fabric}",
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RUST_LOG": "error",
    }
    with open(os.path.join(FOLDER, "restate.log"), "wb") as log:
        server = subprocess.Popen([os.environ["RESTATE_SERVER"]], env=environ, stdout=log, stderr=log)
        command = [sys.executable, "-m", "hypercorn", "--bind", f"127.0.0.1:{serving}", "peer_restate:app"]
        serves = subprocess.Popen(command, cwd=os.path.dirname(os.path.abspath(__file__)), stdout=log, stderr=log)
        try:
            register(admin, serving)
            asyncio.run(main(ingress))
        finally:
            for process in (serves, server):
                process.terminate()
                process.wait()
