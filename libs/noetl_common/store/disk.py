"""The tier of a folder: a laptop's disk, or a volume that all roles mount (tier name pvc)."""

import asyncio
import io
import os
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal

from noetl_common.core.values import Tier
from noetl_common.errors import ConfigError, ReferenceNotAvailable, Unavailable
from noetl_common.store.keys import PARTIAL_PREFIX, checked_key, key_in

COPY_BYTES = 1024 * 1024


class DiskTier:
    """Files below `root`; a payload appears whole or not at all, and stays after a power cut."""

    def __init__(self, root: Path, name: Literal["disk", "pvc"] = "disk") -> None:
        self.name: Tier = name
        self._root = root.absolute()

    async def start(self) -> None:
        """Make the folder. Errors: ConfigError when it cannot be made or written."""
        try:
            await asyncio.to_thread(_make_folder, self._root)
        except OSError as exc:
            raise ConfigError(f"{self.name} tier: cannot make {self._root}: {exc.strerror}") from exc
        if not os.access(self._root, os.R_OK | os.W_OK | os.X_OK):
            raise ConfigError(f"{self.name} tier: expected a folder that can be written, found {self._root}")

    async def put(self, key: str, payload: bytes) -> str:
        """Write `payload` under `key`. Errors: Unavailable when the folder is full or cannot be written."""
        return await self.put_file(key, io.BytesIO(payload))

    async def put_file(self, key: str, file: BinaryIO) -> str:
        """Write all of an open file under `key`. Errors: as `put`."""
        path = self._path(key)
        try:
            await asyncio.to_thread(_write, path, file)
        except OSError as exc:
            raise Unavailable(f"{self.name} tier: cannot write {key}: {exc.strerror}") from exc
        return f"{self.name}://{key}"

    async def get(self, uri: str) -> bytes:
        """Return what is stored. Errors: ReferenceNotAvailable when it is not there or cannot be read."""
        path = self._path(key_in(uri, self.name))
        try:
            return await asyncio.to_thread(path.read_bytes)
        except OSError as exc:
            raise ReferenceNotAvailable(f"{uri}: {exc.strerror}") from exc

    async def get_range(self, uri: str, *, offset: int, length: int) -> bytes:
        """Return a part of what is stored. Errors: as `get`."""
        path = self._path(key_in(uri, self.name))
        try:
            return await asyncio.to_thread(_read_range, path, offset, length)
        except OSError as exc:
            raise ReferenceNotAvailable(f"{uri}: {exc.strerror}") from exc

    def path_of(self, uri: str) -> Path:
        """Return the file of a payload, for readers that read in place. Errors: ReferenceNotAvailable."""
        return self._path(key_in(uri, self.name))

    async def delete(self, uri: str) -> None:
        """Remove a payload; one that is not there is no error."""
        path = self._path(key_in(uri, self.name))
        try:
            await asyncio.to_thread(path.unlink, missing_ok=True)
        except OSError as exc:
            raise Unavailable(f"{self.name} tier: cannot remove {uri}: {exc.strerror}") from exc

    async def list_uris(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        """Return payloads behind `after`, folder by folder; what is being written is none. Errors: Unavailable."""
        behind = tuple(key_in(after, self.name).split("/")) if after else ()
        folders = tuple(part for part in prefix.split("/") if part)
        try:
            found = await asyncio.to_thread(
                lambda: list(islice(_walk(self._root.joinpath(*folders), folders, behind), limit))
            )
        except OSError as exc:
            raise Unavailable(f"{self.name} tier: cannot list {prefix}: {exc.strerror}") from exc
        return [f"{self.name}://{'/'.join(parts)}" for parts in found]

    async def close(self) -> None:
        """Do nothing: no file stays open."""

    def _path(self, key: str) -> Path:
        """Return the file of a key. Errors: ReferenceNotAvailable for one that leads out of the root, by links too."""
        path = self._root.joinpath(*checked_key(key, self.name).split("/"))
        if not path.resolve().is_relative_to(self._root.resolve()):
            raise ReferenceNotAvailable(f"expected a key inside the {self.name} tier, found {key!r}")
        return path


def _write(path: Path, source: BinaryIO) -> None:
    """Write to another name, make it durable, then give it its name and make that durable."""
    _make_folder(path.parent)
    partial = path.with_name(f"{PARTIAL_PREFIX}{os.urandom(8).hex()}")
    try:
        with open(partial, "xb") as file:
            source.seek(0)
            shutil.copyfileobj(source, file, COPY_BYTES)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _read_range(path: Path, offset: int, length: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(max(length, 0))


def _walk(folder: Path, parts: tuple[str, ...], behind: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the keys below `folder` behind `behind`, each as its parts, ordered by these."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        key = (*parts, entry.name)
        if entry.name.startswith(PARTIAL_PREFIX) or key < behind[: len(key)]:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), key, behind)
        elif key > behind:
            yield key


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents, each durable: a file in a folder that a power cut takes away is lost too."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for made in reversed(missing):
        made.mkdir(exist_ok=True)
        _sync_folder(made.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
