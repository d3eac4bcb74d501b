"""A power cut at any moment of a write to the disk tier: the real code of noetl_common.store.disk on modelled files.

What has not been synced may be lost, or any first part of it kept: of a file's bytes, and of what happened to the names
in a folder, in their order.
"""

import io
import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import PurePosixPath
from typing import Any
from unittest import mock

from noetl_common.store import disk
from noetl_common.store.keys import PARTIAL_PREFIX


class PowerCut(BaseException):
    """The machine is gone."""


class Files:
    """A file system that remembers what of it is durable. Paths are texts; `cut_after`: operations until the cut."""

    def __init__(self, source: random.Random, *, cut_after: int, skips_sync: bool = False) -> None:
        self.random = source
        self.cut_after = cut_after
        self.skips_sync = skips_sync
        self.inodes: list[bytearray] = []
        self.synced: list[bytes] = []
        self.names: dict[str, int] = {}  # {path: inode}, -1 for a folder
        self.kept: dict[str, int] = {"/": -1}  # the names that are durable
        self.late: dict[str, list[Callable[[dict[str, int]], None]]] = {}  # by folder: what is not durable yet
        self.handles: dict[int, str] = {}
        self.names["/"] = -1

    def tick(self) -> None:
        """Do one more operation, or none any more."""
        if self.cut_after == 0:
            raise PowerCut
        self.cut_after -= 1

    def change(self, folder: str, happened: Callable[[dict[str, int]], None]) -> None:
        """Change the names of a folder: at once for who looks, later on the disk."""
        self.tick()
        happened(self.names)
        self.late.setdefault(folder, []).append(happened)

    def sync_folder(self, folder: str) -> None:
        """Make the names of a folder durable."""
        self.tick()
        for happened in self.late.pop(folder, []):
            happened(self.kept)

    def sync_file(self, inode: int) -> None:
        """Make a file's bytes durable."""
        self.tick()
        if not self.skips_sync:
            self.synced[inode] = bytes(self.inodes[inode])

    def after_cut(self) -> dict[str, bytes]:
        """Return {path: bytes} of the files that are there when the machine is up again."""
        for happened in self.late.values():
            for one in happened[: self.random.randint(0, len(happened))]:
                one(self.kept)
        found = {}
        for path, inode in self.kept.items():
            folder_is_there = all(str(parent) in self.kept for parent in PurePosixPath(path).parents)
            if inode >= 0 and folder_is_there:
                whole, safe = bytes(self.inodes[inode]), self.synced[inode]
                size = self.random.choice([len(safe), len(whole), self.random.randint(len(safe), len(whole))])
                found[path] = whole[:size] if whole[: len(safe)] == safe else safe
        return found


class SimPath(PurePosixPath):
    """A path of the modelled file system, with the methods that the tier uses."""

    files: Files

    def is_dir(self) -> bool:
        return self.files.names.get(str(self)) == -1

    def mkdir(self, exist_ok: bool = False) -> None:
        path = str(self)
        self.files.change(str(self.parent), lambda names: names.__setitem__(path, -1))

    def replace(self, target: Any) -> None:
        before, after = str(self), str(target)
        inode = self.files.names[before]

        def rename(names: dict[str, int]) -> None:
            names.pop(before, None)
            names[after] = inode

        self.files.change(str(self.parent), rename)

    def unlink(self, missing_ok: bool = False) -> None:
        path = str(self)
        self.files.change(str(self.parent), lambda names: names.pop(path, None) and None)


class OpenFile(io.RawIOBase):
    """An open file."""

    def __init__(self, files: Files, inode: int) -> None:
        self._files, self._inode = files, inode

    def write(self, text: Any) -> int:
        self._files.tick()
        self._files.inodes[self._inode] += bytes(text)
        return len(text)

    def fileno(self) -> int:
        return self._inode


class SimOs:
    """The part of `os` that the tier uses."""

    O_RDONLY = 0

    def __init__(self, files: Files) -> None:
        self._files = files
        self._names = 0

    def urandom(self, size: int) -> bytes:
        return self._files.random.randbytes(size)

    def fsync(self, handle: int) -> None:
        folder = self._files.handles.get(handle)
        if folder is None:
            self._files.sync_file(handle)
        else:
            self._files.sync_folder(folder)

    def open(self, folder: Any, _flags: int) -> int:
        handle = 1_000_000 + len(self._files.handles)
        self._files.handles[handle] = str(folder)
        return handle

    def close(self, handle: int) -> None:
        """Nothing is held by it."""


def run(seed: int, *, skips_sync: bool = False) -> list[str]:
    """Write some payloads until the power is cut; return what was wrong on the disk afterwards."""
    source = random.Random(seed)
    files = Files(source, cut_after=source.randint(0, 60), skips_sync=skips_sync)

    def opened(path: Any, _mode: str) -> OpenFile:
        inode = len(files.inodes)
        files.inodes.append(bytearray())
        files.synced.append(b"")
        files.change(str(path.parent), lambda names: names.__setitem__(str(path), inode))
        return OpenFile(files, inode)

    place = type("Place", (SimPath,), {"files": files})
    written, begun = {}, {}
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(disk, "os", SimOs(files)))
        stack.enter_context(mock.patch.object(disk, "open", opened, create=True))
        try:
            for number in range(source.randint(1, 5)):
                path = f"/{source.randint(1, 2)}/{source.randint(1, 2)}/payload-{number}"
                begun[path] = source.randbytes(source.randint(1, 40))
                disk._write(place(path), io.BytesIO(begun[path]))
                written[path] = begun[path]
        except PowerCut:
            pass
    return judged(files.after_cut(), begun, written)


def judged(found: dict[str, bytes], begun: dict[str, bytes], written: dict[str, bytes]) -> list[str]:
    """Return what is wrong: a payload that is there in part, or that was acknowledged and is not there."""
    wrong = []
    for path, text in found.items():
        if PARTIAL_PREFIX not in path and text != begun[path]:
            wrong.append(f"{path}: {len(text)} of {len(begun[path])} bytes under the final name")
    wrong += [f"{path}: acknowledged, and not there" for path in written if path not in found]
    return wrong
