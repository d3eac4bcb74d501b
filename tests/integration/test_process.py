"""One service as a process: health, metrics, the order of its stop, and how it ends."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from noetl_common.errors import DependencyMissing, Unavailable
from noetl_common.loop import Loop
from noetl_common.process import Service, serve
from tests.running import start_service, wait_until


async def get(url: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=5) as client:
        return await client.get(url)


async def passes() -> None:
    """A check that holds."""


async def fails() -> None:
    raise Unavailable("postgresql://user:password@host is away")


async def idle() -> int:
    return 0


async def test_a_service_without_routes_of_its_own_answers_the_health_routes() -> None:
    async with start_service(Service(name="meta", checks={"postgres": passes})) as running:
        for path in ("/livez", "/readyz", "/startupz", "/healthz"):
            assert (await get(running.url + path)).status_code == 200, path
        metrics = await get(running.url + "/metrics")
        assert metrics.headers["content-type"].startswith("text/plain") and "noetl_build_info" in metrics.text
        version = (await get(running.url + "/version")).json()
        assert version["name"] == "noetl" and version["service"] == "meta"
        assert (await get(running.url + "/other")).status_code == 404


async def test_a_failing_check_makes_it_unready_and_is_named_without_its_text() -> None:
    async with start_service(Service(name="meta", checks={"a": passes, "postgres": fails})) as running:
        ready = await get(running.url + "/readyz")
        assert ready.status_code == 503
        assert ready.json()["failing"] == {"postgres": "Unavailable"}
        assert "password" not in ready.text
        verbose = (await get(running.url + "/healthz?verbose")).json()
        assert verbose["checks"] == {"a": "ok", "postgres": "Unavailable"}
        assert (await get(running.url + "/startupz")).status_code == 503
        assert (await get(running.url + "/livez")).status_code == 200


async def test_a_check_that_hangs_fails_after_two_seconds() -> None:
    async def hangs() -> None:
        await asyncio.Event().wait()

    async with start_service(Service(name="meta", checks={"nats": hangs})) as running:
        ready = await get(running.url + "/readyz")
        assert (ready.status_code, ready.json()["failing"]) == (503, {"nats": "no answer within 2 s"})


async def test_once_started_it_stays_started_whatever_the_checks_say_later() -> None:
    well = True

    async def sometimes() -> None:
        if not well:
            raise Unavailable("away")

    async with start_service(Service(name="meta", checks={"x": sometimes})) as running:
        assert (await get(running.url + "/startupz")).status_code == 200
        well = False
        assert (await get(running.url + "/readyz")).status_code == 503
        assert (await get(running.url + "/startupz")).status_code == 200


async def test_the_service_s_own_routes_stand_beside_the_health_routes() -> None:
    async def hello(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    service = Service(name="ingest", asgi=Starlette(routes=[Route("/api/hello", hello)]))
    async with start_service(service) as running:
        assert (await get(running.url + "/api/hello")).text == "hello"
        assert (await get(running.url + "/livez")).status_code == 200
        assert (await get(running.url + "/api/none")).status_code == 404


async def test_at_the_stop_the_batch_ends_then_the_callbacks_run_then_the_server_closes() -> None:
    order: list[str] = []
    entered, release = asyncio.Event(), asyncio.Event()

    async def batch() -> int:
        entered.set()
        await release.wait()
        order.append("batch")
        return 1

    async def callback() -> None:
        assert (await get(running.url + "/livez")).status_code == 200
        order.append("callback")

    service = Service(name="meta", loops=[Loop(name="work", once=batch)], on_stop=[callback])
    async with start_service(service) as running:
        await entered.wait()
        assert (await get(running.url + "/readyz")).status_code == 200
        running.stop.set()
        await wait_until(lambda: is_unready(running.url))
        assert not running.task.done()
        release.set()
        await running.task
    assert order == ["batch", "callback"]
    with pytest.raises(httpx.ConnectError):
        await get(running.url + "/livez")


async def is_unready(url: str) -> bool:
    answer = await get(url + "/readyz")
    return answer.status_code == 503 and answer.json().get("stopping") is True


async def test_a_callback_that_fails_does_not_keep_the_others_from_running() -> None:
    called: list[str] = []

    async def broken() -> None:
        raise ValueError("broken")

    async def other() -> None:
        called.append("other")

    async with start_service(Service(name="meta", on_stop=[broken, other])):
        pass
    assert called == ["other"]


async def test_a_bug_in_one_loop_stops_the_others_in_order_and_is_raised() -> None:
    called: list[str] = []

    async def bug() -> int:
        raise ValueError("a bug")

    async def callback() -> None:
        called.append("released")

    loops = [Loop(name="idle", once=idle, idle_pause_s=60), Loop(name="bug", once=bug)]
    with pytest.raises(ValueError, match="a bug"):
        await serve(Service(name="meta", loops=loops, on_stop=[callback]), asyncio.Event())
    assert called == ["released"]


async def test_several_services_run_side_by_side_in_one_process() -> None:
    async with (
        start_service(Service(name="ingest", checks={"a": fails})) as ingest,
        start_service(Service(name="meta", loops=[Loop(name="idle", once=idle)])) as meta,
    ):
        assert ingest.url != meta.url
        assert (await get(ingest.url + "/readyz")).status_code == 503
        assert (await get(meta.url + "/readyz")).json()["service"] == "meta"


async def test_a_request_that_never_ends_does_not_hold_up_the_stop_for_ever() -> None:
    entered = asyncio.Event()

    async def hang(_request: Request) -> PlainTextResponse:
        entered.set()
        await asyncio.Event().wait()
        return PlainTextResponse("never")

    service = Service(name="ingest", asgi=Starlette(routes=[Route("/hang", hang)]))
    async with httpx.AsyncClient(timeout=30) as client:
        async with asyncio.timeout(15), start_service(service) as running:
            asking = asyncio.create_task(client.get(running.url + "/hang"))
            await entered.wait()
        assert (await asking).status_code == 503


async def test_a_cancelled_service_closes_its_port_and_its_loops() -> None:
    address: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
    service = Service(name="meta", loops=[Loop(name="idle", once=idle, idle_pause_s=60)])
    task = asyncio.create_task(serve(service, asyncio.Event(), started=lambda h, p: address.set_result((h, p))))
    host, port = await address
    assert (await get(f"http://{host}:{port}/livez")).status_code == 200
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(httpx.ConnectError):
        await get(f"http://{host}:{port}/livez")
    assert not [t for t in asyncio.all_tasks() if t.get_name().startswith("meta.")]


async def test_a_port_that_is_taken_is_a_missing_dependency(free_port: Callable[[], int]) -> None:
    port = free_port()
    async with start_service(Service(name="meta", port=port)):
        with pytest.raises(DependencyMissing, match=str(port)):
            await serve(Service(name="meta", port=port), asyncio.Event())


PROGRAM = textwrap.dedent(
    """
    import asyncio, sys
    from noetl_common.errors import ConfigError, DependencyMissing
    from noetl_common.loop import Loop
    from noetl_common.process import Service, run, serve

    async def once():
        {once}
        return 0

    async def main(stop):
        {main}
        service = Service(name="demo", loops=[Loop(name="tick", once=once, idle_pause_s=0.01)])
        await serve(service, stop, started=lambda host, port: print(f"at {{host}}:{{port}}", flush=True))

    sys.exit(run("demo", main))
    """
)


def program(*, once: str = "pass", main: str = "pass") -> list[str]:
    return [sys.executable, "-c", PROGRAM.format(once=once, main=main)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_the_process_with_exit_code_0(number: signal.Signals) -> None:
    process = await asyncio.create_subprocess_exec(*program(), stdout=subprocess.PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(30):
        while not (line := await process.stdout.readline()).startswith(b"at "):
            assert line
        address = line.split()[1].decode()
        assert (await get(f"http://{address}/livez")).status_code == 200
        process.send_signal(number)
        rest, _ = await process.communicate()
    assert process.returncode == 0
    assert b'"event":"service.stopped"' in rest


@pytest.mark.parametrize(
    ("once", "main", "code", "event"),
    [
        ("raise KeyError('bug')", "pass", 1, b"process.bug"),
        ("pass", "raise ConfigError('NOETL_X: wrong')", 3, b"NOETL_X: wrong"),
        ("pass", "raise DependencyMissing('no Postgres')", 4, b"no Postgres"),
    ],
)
async def test_the_exit_code_says_why_a_process_ended(once: str, main: str, code: int, event: bytes) -> None:
    process = await asyncio.create_subprocess_exec(*program(once=once, main=main), stdout=subprocess.PIPE)
    async with asyncio.timeout(30):
        written, _ = await process.communicate()
    assert process.returncode == code
    assert event in written


async def test_a_second_signal_ends_a_process_that_hangs(tmp_path: Path) -> None:
    mark = tmp_path / "hanging"
    once = f"open({os.fspath(mark)!r}, 'w').close(); await asyncio.sleep(60)"
    process = await asyncio.create_subprocess_exec(*program(once=once), stdout=subprocess.PIPE)
    async with asyncio.timeout(30):
        await wait_until(mark.exists, timeout_s=20)
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        while b"service.stopping" not in await process.stdout.readline():
            pass
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert process.returncode == 1
