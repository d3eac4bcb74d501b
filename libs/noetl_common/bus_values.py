"""Values under keys in NATS, for a while: what can be lost without harm, and is never waited for."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import nats.errors
from nats.aio.client import Client
from nats.js.api import DiscardPolicy, StorageType, StreamConfig
from nats.js.errors import APIError, KeyNotFoundError, NoKeysError, NoStreamResponseError, NotFoundError
from nats.js.kv import KeyValue

from noetl_common.bus import CONNECT_TIMEOUT_S, PING_INTERVAL_S, RECONNECT_PAUSE_S, check_url, server_of
from noetl_common.errors import Unavailable
from noetl_common.log import get_logger

CALL_TIMEOUT_S = 0.5
FIRST_CONNECT_S = 0.2  # how long the first call waits for the connection; later ones do not
BREAK_S_MIN = 0.5  # after a call that failed, none is tried for so long; doubled each time
BREAK_S_MAX = 4.0
BUCKET_BYTES_MAX = 256 * 1024 * 1024  # the oldest values make room
BUCKET_TTL_S = 3600.0
VALUE_BYTES_MAX = 1024 * 1024 - 4096  # a server takes messages of 1 MiB, subject and headers included

T = TypeVar("T")

log = get_logger(__name__)


class Values(Protocol):
    """Values under keys. Every call may fail at any time, and takes half a second at most."""

    async def put(self, key: str, value: bytes) -> None:
        """Keep a value for a while. Errors: Unavailable."""

    async def get(self, key: str) -> bytes | None:
        """Return a value, None when there is none. Errors: Unavailable."""

    async def keys(self) -> list[str]:
        """Return the keys of all values. Errors: Unavailable."""

    async def delete(self, key: str) -> None:
        """Forget a value. Errors: Unavailable."""

    async def close(self) -> None:
        """Disconnect."""


class NatsValues:
    """A JetStream key-value bucket. The connection is made behind the first call, and kept up.

    While it is down, or after a call that failed, calls fail at once: a server that hangs is asked again after
    BREAK_S_MIN, then after pauses twice as long each time, up to BREAK_S_MAX.
    """

    def __init__(self, url: str, *, bucket: str, name: str = "noetl", ttl_s: float = BUCKET_TTL_S) -> None:
        check_url(url)
        self._url = url
        self._name = name
        self._config = StreamConfig(
            name=f"KV_{bucket}",
            subjects=[f"$KV.{bucket}.>"],
            # A value over a quarter of a message could not be read otherwise: an answer in JSON holds it in base64.
            allow_direct=True,
            allow_rollup_hdrs=True,
            deny_delete=True,
            discard=DiscardPolicy.OLD,
            duplicate_window=min(120.0, ttl_s),
            max_age=ttl_s,
            max_bytes=BUCKET_BYTES_MAX,
            max_msg_size=1024 * 1024,
            max_msgs_per_subject=1,
            storage=StorageType.FILE,
        )
        self._bucket_name = bucket
        self._client: Client | None = None
        self._bucket: KeyValue | None = None
        self._ready = asyncio.Event()
        self._gave_up = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None
        self._break_s = BREAK_S_MIN
        self._broken_until_s = 0.0

    async def put(self, key: str, value: bytes) -> None:
        """Keep a value until the bucket's time is over or room is needed. Errors: Unavailable."""
        if len(value) > VALUE_BYTES_MAX:
            raise Unavailable(f"nats values: expected at most {VALUE_BYTES_MAX} bytes, found {len(value)}")
        await self._called(lambda bucket: bucket.put(key, value))

    async def get(self, key: str) -> bytes | None:
        """Return a value, None when there is none. Errors: Unavailable."""

        async def read(bucket: KeyValue) -> bytes | None:
            try:
                return (await bucket.get(key)).value or b""
            except KeyNotFoundError:
                return None

        return await self._called(read)

    async def keys(self) -> list[str]:
        """Return the keys of all values. Errors: Unavailable."""

        async def read(bucket: KeyValue) -> list[str]:
            try:
                return await bucket.keys()
            except NoKeysError:
                return []

        return await self._called(read)

    async def delete(self, key: str) -> None:
        """Forget a value. Errors: Unavailable."""
        await self._called(lambda bucket: bucket.purge(key))

    async def close(self) -> None:
        """Disconnect."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.cancel()
            await asyncio.gather(supervisor, return_exceptions=True)
        self._ready.clear()

    async def _called(self, call: Callable[[KeyValue], Awaitable[T]]) -> T:
        now_s = time.monotonic()
        if now_s < self._broken_until_s:
            raise Unavailable("nats values: not tried, because a call has just failed")
        bucket = await self._connected()
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                answer = await call(bucket)
        except (nats.errors.Error, OSError, TimeoutError) as exc:
            self._broken_until_s = time.monotonic() + self._break_s
            self._break_s = min(2 * self._break_s, BREAK_S_MAX)
            if isinstance(exc, NotFoundError | NoStreamResponseError | nats.errors.NoRespondersError):
                self._gave_up.set()  # the bucket is gone: connect anew, which makes it
            raise Unavailable(f"nats values: {type(exc).__name__}: {exc}") from exc
        self._break_s = BREAK_S_MIN
        return answer

    async def _connected(self) -> KeyValue:
        if self._supervisor is None:
            self._supervisor = asyncio.create_task(self._supervise(), name="values.supervisor")
            try:
                async with asyncio.timeout(FIRST_CONNECT_S):
                    await self._ready.wait()
            except TimeoutError:
                log.info("values.not_connected", server=server_of(self._url))
        if self._bucket is None or self._client is None or not (self._ready.is_set() and self._client.is_connected):
            raise Unavailable("nats values: not connected")
        return self._bucket

    async def _supervise(self) -> None:
        while True:
            self._gave_up.clear()
            client = self._client = Client()
            try:
                await client.connect(
                    self._url,
                    name=f"{self._name}-values",
                    connect_timeout=CONNECT_TIMEOUT_S,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=RECONNECT_PAUSE_S,  # type: ignore[arg-type]  # any number of seconds will do
                    ping_interval=PING_INTERVAL_S,
                    error_cb=self._on_error,
                    closed_cb=self._on_closed,
                )
                self._bucket = await self._made(client)
                self._ready.set()
                log.info("values.connected", server=server_of(self._url))
                await self._gave_up.wait()
            except Exception as error:
                # Whatever the client stumbles over: values are a convenience, and the next try may do.
                log.debug("values.connect_failed", server=server_of(self._url), error=error)
            finally:
                self._ready.clear()
                await client.close()
            await asyncio.sleep(RECONNECT_PAUSE_S)

    async def _made(self, client: Client) -> KeyValue:
        """Return the bucket, made if it is not there, with the present limits."""
        stream = client.jetstream(timeout=CONNECT_TIMEOUT_S)
        try:
            await stream.add_stream(self._config)
        except APIError as exc:
            log.debug("values.bucket_differs", error=exc)
            await stream.update_stream(self._config)
        return await stream.key_value(self._bucket_name)

    async def _on_closed(self) -> None:
        self._gave_up.set()

    async def _on_error(self, error: Exception) -> None:
        log.debug("values.error", error=error)
