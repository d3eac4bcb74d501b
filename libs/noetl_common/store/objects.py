"""The tier of an object store: threads, time limits and repetitions around a client that blocks."""

import asyncio
import io
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO, Protocol, TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_exponential, wait_random

from noetl_common.core.values import Tier
from noetl_common.errors import ConfigError, NoetlError, ReferenceNotAvailable, Unauthorized, Unavailable
from noetl_common.store.keys import checked_key, key_in

CONNECT_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 30.0
RETRY_S_MAX = 10.0  # how long an operation is begun again
RETRY_PAUSE_S = 0.1
RETRY_PAUSE_S_MAX = 2.0
THREADS_MAX = 8  # operations on one object store at the same time

T = TypeVar("T")


class Objects(Protocol):
    """One bucket, by a client that blocks.

    Errors of all: Unavailable for what may go by when tried again, Unauthorized when the login is refused,
    ReferenceNotAvailable when the object is not there, ConfigError when the settings can never work.
    """

    def make_bucket(self) -> None:
        """Make the bucket if it is not there."""

    def put(self, key: str, payload: BinaryIO, size: int) -> None:
        """Store an object of `size` bytes, read a part at a time."""

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return an object, or a part of it."""

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there may be a ReferenceNotAvailable."""

    def list_keys(self, prefix: str, *, after: str, limit: int) -> list[str]:
        """Return keys that begin with `prefix`, in their order, behind `after`."""

    def close(self) -> None:
        """Close the connections."""


class ObjectTier:
    """A bucket as a tier. An operation that meets a server which is away is begun again for RETRY_S_MAX."""

    def __init__(self, objects: Objects, name: Tier, *, retry_s: float = RETRY_S_MAX) -> None:
        self.name = name
        self._objects = objects
        self._retry_s = retry_s
        self._has_bucket = False
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix=f"store-{name}")

    async def start(self) -> None:
        """Make the bucket. Errors: ConfigError when the login is refused; Unavailable when the server is away."""
        try:
            await self._make_bucket()
        except Unauthorized as exc:
            raise ConfigError(f"{self.name} tier: the login is refused: {exc}") from exc

    async def put(self, key: str, payload: bytes) -> str:
        """Store an object. Errors: Unavailable when the server does not take it."""
        return await self.put_file(key, io.BytesIO(payload))

    async def put_file(self, key: str, file: BinaryIO) -> str:
        """Store all of an open file as an object. Errors: as `put`."""
        checked_key(key, self.name)
        size = file.seek(0, os.SEEK_END)

        def put() -> None:
            file.seek(0)
            self._objects.put(key, file, size)

        try:
            # The server may have been away at the start.
            if not self._has_bucket:
                await self._make_bucket()
            await self._tried(put)
        except ReferenceNotAvailable as exc:
            self._has_bucket = False
            raise Unavailable(f"{self.name} tier: cannot write {key}: {exc}") from exc
        except NoetlError as exc:
            raise Unavailable(f"{self.name} tier: cannot write {key}: {exc}") from exc
        return f"{self.name}://{key}"

    async def get(self, uri: str) -> bytes:
        """Return an object. Errors: ReferenceNotAvailable when it is not there or the server does not give it."""
        key = key_in(uri, self.name)
        return await self._read(uri, lambda: self._objects.get(key))

    async def get_range(self, uri: str, *, offset: int, length: int) -> bytes:
        """Return a part of an object. Errors: as `get`."""
        key = key_in(uri, self.name)
        if length <= 0:
            return b""
        return await self._read(uri, lambda: self._objects.get(key, offset=offset, length=length))

    async def delete(self, uri: str) -> None:
        """Remove an object; one that is not there is no error. Errors: Unavailable."""
        key = key_in(uri, self.name)
        try:
            await self._tried(lambda: self._objects.delete(key))
        except ReferenceNotAvailable:
            return
        except NoetlError as exc:
            raise Unavailable(f"{self.name} tier: cannot remove {uri}: {exc}") from exc

    async def list_uris(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        """Return objects behind `after`, in the order of their keys. Errors: Unavailable."""
        behind = key_in(after, self.name) if after else ""
        try:
            keys = await self._tried(lambda: self._objects.list_keys(prefix, after=behind, limit=limit))
        except ReferenceNotAvailable:
            return []  # the bucket is not there (yet)
        except NoetlError as exc:
            raise Unavailable(f"{self.name} tier: cannot list {prefix}: {exc}") from exc
        return [f"{self.name}://{key}" for key in keys]

    async def close(self) -> None:
        """Close the connections; an operation under way ends by its own time limit."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._objects.close()

    async def _make_bucket(self) -> None:
        await self._tried(self._objects.make_bucket)
        self._has_bucket = True

    async def _read(self, uri: str, read: Callable[[], bytes]) -> bytes:
        try:
            return await self._tried(read)
        except ReferenceNotAvailable as exc:
            raise ReferenceNotAvailable(f"{uri}: {exc}") from exc
        except NoetlError as exc:
            raise ReferenceNotAvailable(f"{uri}: cannot be read now: {exc}") from exc

    async def _tried(self, operation: Callable[[], T]) -> T:
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(Unavailable),
            wait=wait_exponential(multiplier=RETRY_PAUSE_S, max=RETRY_PAUSE_S_MAX) + wait_random(0, RETRY_PAUSE_S),
            stop=stop_after_delay(self._retry_s),
            reraise=True,
        )
        async for attempt in attempts:
            with attempt:
                return await asyncio.get_running_loop().run_in_executor(self._threads, operation)
        raise AssertionError("the last attempt returns or raises")
