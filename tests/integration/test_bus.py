"""One suite for both forms of the bus, and what only the real one can show: life without its server."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from noetl_cli.embedded import start_nats
from noetl_cli.embedded.server import Server
from noetl_common import metrics
from noetl_common.bus import Bus, MemoryBus, NatsBus, connect, matches
from noetl_common.errors import ConfigError
from tests.running import wait_until

Seen = list[tuple[str, bytes]]


@pytest.fixture(params=["memory", "nats"])
async def bus(request: pytest.FixtureRequest) -> AsyncIterator[Bus]:
    opened = await connect("" if request.param == "memory" else request.getfixturevalue("nats_url"))
    yield opened
    await opened.close()


@pytest.fixture
def root() -> str:
    """A first token nobody else uses, because the server is shared."""
    return f"t{os.urandom(6).hex()}"


def recorder(seen: Seen) -> Callable[[str, bytes], "asyncio.Future[None]"]:
    async def record(subject: str, payload: bytes) -> None:
        seen.append((subject, payload))

    return record  # type: ignore[return-value]


async def test_a_message_reaches_every_subscription_of_its_subject(bus: Bus, root: str) -> None:
    one: Seen = []
    two: Seen = []
    await bus.subscribe(f"{root}.a", recorder(one))
    await bus.subscribe(f"{root}.a", recorder(two))
    await bus.publish(f"{root}.a", b"hello")
    await wait_until(lambda: one and two)
    assert one == two == [(f"{root}.a", b"hello")]


async def test_messages_arrive_in_the_order_they_were_sent(bus: Bus, root: str) -> None:
    seen: Seen = []
    await bus.subscribe(f"{root}.>", recorder(seen))
    for number in range(200):
        await bus.publish(f"{root}.{number % 3}", str(number).encode())
    await wait_until(lambda: len(seen) == 200)
    assert [int(payload) for _subject, payload in seen] == list(range(200))


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.b.c", False),
        ("a.b", "a", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("*.b", "a.b", True),
        ("a.*.c", "a.x.c", True),
        ("a.>", "a.b.c.d", True),
        ("a.>", "a", False),
        ("a.*.>", "a.b", False),
        ("a.*.>", "a.b.c", True),
    ],
)
async def test_wildcards_mean_what_nats_means_by_them(
    bus: Bus, root: str, pattern: str, subject: str, expected: bool
) -> None:
    seen: Seen = []
    await bus.subscribe(f"{root}.{pattern}", recorder(seen))
    await bus.subscribe(f"{root}.end", recorder(seen))
    await bus.publish(f"{root}.{subject}", b"it")
    await bus.publish(f"{root}.end", b"end")
    await wait_until(lambda: (f"{root}.end", b"end") in seen and len(seen) == 1 + expected)
    assert ((f"{root}.{subject}", b"it") in seen) is expected
    assert matches(pattern, subject) is expected


async def test_after_unsubscribing_nothing_arrives_and_a_second_time_does_nothing(bus: Bus, root: str) -> None:
    ended: Seen = []
    kept: Seen = []
    subscription = await bus.subscribe(f"{root}.a", recorder(ended))
    await bus.subscribe(f"{root}.a", recorder(kept))
    await subscription.unsubscribe()
    await subscription.unsubscribe()
    await bus.publish(f"{root}.a")
    await wait_until(lambda: kept)
    assert ended == []


async def test_a_handler_that_raises_is_counted_and_the_next_message_arrives(bus: Bus, root: str) -> None:
    seen: Seen = []

    async def picky(subject: str, payload: bytes) -> None:
        if payload == b"bad":
            raise ValueError("refused")
        seen.append((subject, payload))

    before = metrics.value("noetl_bus_handler_errors_total")
    await bus.subscribe(f"{root}.a", picky)
    await bus.publish(f"{root}.a", b"bad")
    await bus.publish(f"{root}.a", b"good")
    await wait_until(lambda: seen)
    assert seen == [(f"{root}.a", b"good")]
    assert metrics.value("noetl_bus_handler_errors_total") == before + 1


async def test_a_handler_may_publish_and_may_end_its_own_subscription(bus: Bus, root: str) -> None:
    seen: Seen = []
    await bus.subscribe(f"{root}.answer", recorder(seen))

    async def answer(_subject: str, payload: bytes) -> None:
        await bus.publish(f"{root}.answer", payload)
        await asking.unsubscribe()

    asking = await bus.subscribe(f"{root}.ask", answer)
    await bus.publish(f"{root}.ask", b"1")
    await wait_until(lambda: seen)
    assert seen == [(f"{root}.answer", b"1")]


async def test_publishing_after_the_close_is_dropped_and_counted(bus: Bus, root: str) -> None:
    await bus.close()
    before = dropped()
    await bus.publish(f"{root}.a")
    assert not bus.connected
    assert dropped() == before + 1


async def test_without_a_url_the_bus_lives_in_the_process() -> None:
    bus = await connect("")
    assert isinstance(bus, MemoryBus)
    assert bus.connected
    await bus.close()


async def test_an_address_that_is_not_of_a_nats_server_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="NATS_URL"):
        await connect("localhost:4222")


async def test_a_message_too_large_for_the_server_is_dropped_not_raised(nats_url: str, root: str) -> None:
    bus = await connect(nats_url)
    before = dropped()
    await bus.publish(f"{root}.a", b"x" * 2_000_000)
    await bus.publish("no good subject", b"")
    assert dropped() == before + 2
    await bus.close()


async def test_starting_and_publishing_work_while_the_server_is_down(
    tmp_path: Path, free_port: Callable[[], int], root: str
) -> None:
    port = free_port()
    bus = await connect(f"nats://127.0.0.1:{port}")
    assert isinstance(bus, NatsBus)
    assert not bus.connected
    before = dropped()
    began = asyncio.get_running_loop().time()
    await bus.publish(f"{root}.a", b"lost")
    assert asyncio.get_running_loop().time() - began < 0.2
    assert dropped() == before + 1
    seen: Seen = []
    await bus.subscribe(f"{root}.a", recorder(seen))
    server = start_nats(tmp_path, port=port)
    try:
        await wait_until(lambda: bus.connected)
        await bus.publish(f"{root}.a", b"now")
        await wait_until(lambda: seen)
        assert seen == [(f"{root}.a", b"now")]
    finally:
        await bus.close()
        server.stop()


async def test_messages_flow_again_after_the_server_was_killed_and_came_back(
    own_nats: Server, tmp_path: Path, root: str
) -> None:
    listening, speaking = await connect(own_nats.url), await connect(own_nats.url)
    seen: Seen = []
    await listening.subscribe(f"{root}.>", recorder(seen))
    await speaking.publish(f"{root}.a", b"before")
    await wait_until(lambda: seen)
    own_nats.process.send_signal(signal.SIGKILL)
    own_nats.process.wait()
    await wait_until(lambda: not listening.connected and not speaking.connected)
    began = asyncio.get_running_loop().time()
    await speaking.publish(f"{root}.a", b"lost")
    assert asyncio.get_running_loop().time() - began < 0.2
    back = start_nats(tmp_path, port=int(own_nats.url.rpartition(":")[2]))
    try:
        await wait_until(lambda: listening.connected and speaking.connected)
        await speaking.publish(f"{root}.a", b"after")
        await wait_until(lambda: len(seen) == 2, timeout_s=5.0)
        assert seen == [(f"{root}.a", b"before"), (f"{root}.a", b"after")]
    finally:
        await listening.close()
        await speaking.close()
        back.stop()


async def test_closing_while_the_server_is_down_ends_at_once(free_port: Callable[[], int]) -> None:
    bus = await connect(f"nats://127.0.0.1:{free_port()}")
    async with asyncio.timeout(2.0):
        await bus.close()


def dropped() -> float:
    reasons = ("closed", "disconnected", "refused", "slow_server", "slow_consumer", "timeout")
    return sum(metrics.value("noetl_bus_dropped_total", reason=reason) for reason in reasons)
