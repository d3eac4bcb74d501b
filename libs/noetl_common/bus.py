"""The bus: best-effort doorbells over NATS, or inside one process. Nothing authoritative ever travels on it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription

from noetl_common import metrics
from noetl_common.errors import ConfigError
from noetl_common.log import get_logger

SCHEMES = ("nats", "tls", "ws", "wss")
PUBLISH_BUDGET_S = 0.2
PENDING_BYTES_MAX = 1024 * 1024
QUEUE_MESSAGES_MAX = 65_536
CONNECT_TIMEOUT_S = 2
RECONNECT_PAUSE_S = 0.5
START_GRACE_S = 1.0
PING_INTERVAL_S = 5
FLUSH_TIMEOUT_S = 1

Handler = Callable[[str, bytes], Awaitable[None]]

log = get_logger(__name__)


class Subscription(Protocol):
    """What `subscribe` returns."""

    async def unsubscribe(self) -> None:
        """Stop receiving; a second call does nothing."""


class Bus(Protocol):
    """Publish and subscribe, at most once, in order per subscription. Subjects are NATS's: tokens, `*`, `>`."""

    @property
    def connected(self) -> bool:
        """True when a message published now would travel."""

    async def publish(self, subject: str, payload: bytes = b"") -> None:
        """Send best effort: never raises, takes 200 ms at most; what cannot be sent is dropped and counted."""

    async def subscribe(self, subject: str, handler: Handler) -> Subscription:
        """Call `handler(subject, payload)` for each message, one after the other, over every reconnect.

        What a handler raises is logged and counted.
        """

    async def close(self) -> None:
        """Stop delivering and disconnect."""


async def connect(url: str, *, name: str = "noetl") -> Bus:
    """Return a bus on the NATS server of `url`, or one inside this process when `url` is empty.

    A server that is down is tried again for ever behind the scenes.
    Errors: ConfigError when `url` is not one of a NATS server.
    """
    if not url:
        _show_mode("memory")
        return MemoryBus()
    check_url(url)
    bus = NatsBus(url, name=name)
    await bus.start()
    return bus


def hears_others(bus: Bus) -> bool:
    """Return True while bells that other processes ring arrive here."""
    return isinstance(bus, NatsBus) and bus.connected


def check_url(url: str) -> None:
    """Return if `url` is one of a NATS server. Errors: ConfigError."""
    if urlsplit(url).scheme not in SCHEMES or not urlsplit(url).hostname:
        raise ConfigError(f"NATS_URL: expected nats://host:port, found {server_of(url)!r}")


def server_of(url: str) -> str:
    """Return host and port without the credentials that a URL may hold."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or 4222}"


def matches(pattern: str, subject: str) -> bool:
    """Return True when a subject is under a pattern: `*` is one token, a last `>` is one or more."""
    wanted, found = pattern.split("."), subject.split(".")
    for place, token in enumerate(wanted):
        if token == ">":
            return len(found) > place
        if place >= len(found) or token not in ("*", found[place]):
            return False
    return len(wanted) == len(found)


class MemoryBus:
    """The bus of a single process."""

    def __init__(self) -> None:
        self._subscriptions: set[_MemorySubscription] = set()
        self._closed = False

    @property
    def connected(self) -> bool:
        """True until it is closed."""
        return not self._closed

    async def publish(self, subject: str, payload: bytes = b"") -> None:
        """Hand the message to each subscription's queue."""
        if self._closed:
            _drop("closed")
            return
        metrics.inc("noetl_bus_published_total")
        for subscription in self._subscriptions:
            if matches(subscription.pattern, subject):
                subscription.offer(subject, payload)

    async def subscribe(self, subject: str, handler: Handler) -> Subscription:
        """Start delivering what matches."""
        subscription = _MemorySubscription(subject, handler, forget=self._subscriptions.discard)
        self._subscriptions.add(subscription)
        return subscription

    async def close(self) -> None:
        """End every subscription."""
        self._closed = True
        for subscription in list(self._subscriptions):
            await subscription.unsubscribe()


class _MemorySubscription:
    def __init__(self, pattern: str, handler: Handler, *, forget: Callable[["_MemorySubscription"], None]) -> None:
        self.pattern = pattern
        self._handler = handler
        self._forget = forget
        self._queue: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(QUEUE_MESSAGES_MAX)
        self._task = asyncio.create_task(self._pump(), name=f"bus.{pattern}")

    def offer(self, subject: str, payload: bytes) -> None:
        """Queue one message, or drop it when the handler is far behind."""
        if self._queue.full():
            _drop("slow_consumer")
            return
        self._queue.put_nowait((subject, payload))

    async def unsubscribe(self) -> None:
        """Stop; what is queued is not delivered any more."""
        self._forget(self)
        await _ended(self._task)

    async def _pump(self) -> None:
        while True:
            subject, payload = await self._queue.get()
            await _deliver(self._handler, subject, payload)


class NatsBus:
    """The bus over NATS. One task connects, and connects anew should the client ever give up."""

    def __init__(self, url: str, *, name: str) -> None:
        self._url = url
        self._name = name
        self._client: Client | None = None
        self._ready = asyncio.Event()
        self._gave_up = asyncio.Event()
        self._subscriptions: set[_NatsSubscription] = set()
        self._supervisor: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        """True while the connection stands."""
        return self._client is not None and self._ready.is_set() and self._client.is_connected

    async def start(self) -> None:
        """Begin to connect; wait a moment for it, so that a server that is there is used from the start."""
        _show_mode("poll")
        self._supervisor = asyncio.create_task(self._supervise(), name="bus.supervisor")
        try:
            async with asyncio.timeout(START_GRACE_S):
                await self._ready.wait()
        except TimeoutError:
            log.warning("bus.not_connected", server=server_of(self._url))

    async def publish(self, subject: str, payload: bytes = b"") -> None:
        """Send when connected; nothing is kept for later, because a late doorbell helps nobody."""
        client = self._client
        if client is None or not self.connected:
            _drop("disconnected")
            return
        if client.pending_data_size + len(payload) > PENDING_BYTES_MAX:
            _drop("slow_server")
            return
        try:
            async with asyncio.timeout(PUBLISH_BUDGET_S):
                await client.publish(subject, payload)
        except TimeoutError:
            _drop("timeout")
        except (nats.errors.Error, OSError, ValueError) as error:
            _drop("refused")
            log.warning("bus.publish_refused", subject=subject, bytes=len(payload), error=error)
        else:
            metrics.inc("noetl_bus_published_total")

    async def subscribe(self, subject: str, handler: Handler) -> Subscription:
        """Remember the subscription, and make it now when connected, else with the next connection."""
        subscription = _NatsSubscription(subject, handler, forget=self._subscriptions.discard)
        self._subscriptions.add(subscription)
        if self._client is not None and self.connected:
            await self._establish(self._client, [subscription])
        return subscription

    async def close(self) -> None:
        """End the connection and every subscription."""
        if self._supervisor is not None:
            await _ended(self._supervisor)
            self._supervisor = None
        self._ready.clear()
        if self._client is not None:
            await self._client.close()
            self._client = None
        self._subscriptions.clear()

    async def _supervise(self) -> None:
        while True:
            self._gave_up.clear()
            client = self._client = Client()
            try:
                await client.connect(
                    self._url,
                    name=self._name,
                    connect_timeout=CONNECT_TIMEOUT_S,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=RECONNECT_PAUSE_S,  # type: ignore[arg-type]  # any number of seconds will do
                    ping_interval=PING_INTERVAL_S,
                    error_cb=self._on_error,
                    disconnected_cb=self._on_disconnected,
                    reconnected_cb=self._on_connected,
                    closed_cb=self._on_closed,
                )
                await self._establish(client, list(self._subscriptions))
                self._ready.set()
                await self._on_connected()
                await self._gave_up.wait()
            except Exception as error:
                # Whatever the client stumbles over: the bus is a convenience, and the next try may do.
                log.warning("bus.connect_failed", server=server_of(self._url), error=error)
            self._ready.clear()
            await client.close()
            await asyncio.sleep(RECONNECT_PAUSE_S)

    async def _establish(self, client: Client, subscriptions: list["_NatsSubscription"]) -> None:
        """Subscribe at the server, and wait until it has taken note."""
        try:
            for subscription in subscriptions:
                await subscription.establish(client)
            await client.flush(FLUSH_TIMEOUT_S)
        except (nats.errors.Error, OSError, TimeoutError) as error:
            # The client repeats its subscriptions at the next connection by itself.
            log.warning("bus.subscribe_delayed", error=error)

    async def _on_connected(self) -> None:
        _show_mode("nats")
        log.info("bus.connected", server=server_of(self._url))

    async def _on_disconnected(self) -> None:
        _show_mode("poll")
        log.warning("bus.disconnected", server=server_of(self._url))

    async def _on_closed(self) -> None:
        self._gave_up.set()

    async def _on_error(self, error: Exception) -> None:
        if isinstance(error, nats.errors.SlowConsumerError):
            _drop("slow_consumer")
        log.debug("bus.error", error=error)


class _NatsSubscription:
    def __init__(self, pattern: str, handler: Handler, *, forget: Callable[["_NatsSubscription"], None]) -> None:
        self._pattern = pattern
        self._handler = handler
        self._forget = forget
        self._client: Client | None = None
        self._established: NatsSubscription | None = None

    async def establish(self, client: Client) -> None:
        """Subscribe at this client, unless that was done."""
        if self._client is not client:
            self._client = client
            self._established = await client.subscribe(
                self._pattern, cb=self._received, pending_msgs_limit=QUEUE_MESSAGES_MAX
            )

    async def unsubscribe(self) -> None:
        """Stop; what is queued is not delivered any more."""
        self._forget(self)
        established, self._established = self._established, None
        if established is None:
            return
        try:
            await established.unsubscribe()
        except (nats.errors.Error, OSError) as error:
            # A closed connection has no subscriptions left to end.
            log.debug("bus.unsubscribe_refused", error=error)

    async def _received(self, message: Msg) -> None:
        await _deliver(self._handler, message.subject, message.data)


async def _deliver(handler: Handler, subject: str, payload: bytes) -> None:
    """Call a handler; what it raises ends neither the subscription nor the process: a bell carries no work."""
    metrics.inc("noetl_bus_received_total")
    try:
        await handler(subject, payload)
    except Exception:
        metrics.inc("noetl_bus_handler_errors_total")
        log.exception("bus.handler_failed", subject=subject)


async def _ended(task: "asyncio.Task[None]") -> None:
    """Cancel a task and wait for its end; a task that ends itself is not waited for."""
    task.cancel()
    if task is not asyncio.current_task():
        await asyncio.gather(task, return_exceptions=True)


def _drop(reason: str) -> None:
    metrics.inc("noetl_bus_dropped_total", 1, reason=reason)


def _show_mode(mode: str) -> None:
    for known in ("nats", "poll", "memory"):
        metrics.gauge("noetl_transport_mode", float(known == mode), mode=known)
