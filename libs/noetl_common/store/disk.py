"""The tier of a folder: a laptop's disk, or a volume that all roles mount (tier name pvc)."""

import asyncio
import os
from pathlib import Path
from typing import Literal

from noetl_common.core.values import Tier
from noetl_common.errors import ReferenceNotAvailable, Unavailable

PARTIAL_PREFIX = ".partial-"


class DiskTier:
    """Files below `root`; a payload appears whole or not at all, and stays after a power cut."""

    def __init__(self, root: Path, name: Literal["disk", "pvc"] = "disk") -> None:
        self.name: Tier = name
        self._root = root.absolute()

    async def put(self, key: str, payload: bytes) -> str:
        """Write `payload` under `key`. Errors: Unavailable when the folder is full or cannot be written."""
        path = self._path(key)
        try:
            await asyncio.to_thread(_write, path, payload)
        except OSError as exc:
            raise Unavailable(f"{self.name} tier: cannot write {key}: {exc.strerror}") from exc
        return f"{self.name}://{key}"

    async def get(self, uri: str) -> bytes:
        """Return what is stored. Errors: ReferenceNotAvailable when it is not there or cannot be read."""
        path = self._path(self._key(uri))
        try:
            return await asyncio.to_thread(path.read_bytes)
        except OSError as exc:
            raise ReferenceNotAvailable(f"{uri}: {exc.strerror}") from exc

    async def delete(self, uri: str) -> None:
        """Remove a payload; one that is not there is no error."""
        path = self._path(self._key(uri))
        try:
            await asyncio.to_thread(path.unlink, missing_ok=True)
        except OSError as exc:
            raise Unavailable(f"{self.name} tier: cannot remove {uri}: {exc.strerror}") from exc

    def _key(self, uri: str) -> str:
        scheme, found, key = uri.partition("://")
        if not found or scheme != self.name:
            raise ReferenceNotAvailable(f"expected a uri of the {self.name} tier, found {uri!r}")
        return key

    def _path(self, key: str) -> Path:
        """Return the file of a key. Errors: ReferenceNotAvailable for one that leads out of the root, by links too."""
        parts = key.split("/")
        if any(part in ("", ".", "..") or "\0" in part or part.startswith(PARTIAL_PREFIX) for part in parts):
            raise ReferenceNotAvailable(f"expected a key inside the {self.name} tier, found {key!r}")
        path = self._root.joinpath(*parts)
        if not path.resolve().is_relative_to(self._root.resolve()):
            raise ReferenceNotAvailable(f"expected a key inside the {self.name} tier, found {key!r}")
        return path


def _write(path: Path, payload: bytes) -> None:
    """Write to another name, make it durable, then give it its name and make that durable."""
    _make_folder(path.parent)
    partial = path.with_name(f"{PARTIAL_PREFIX}{os.urandom(8).hex()}")
    try:
        with open(partial, "xb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


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
