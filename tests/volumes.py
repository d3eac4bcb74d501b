"""Volumes of a given size, so that a test can fill one."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MNT_DETACH = 2


@contextmanager
def mounted(folder: Path, *, bytes_max: int) -> Iterator[None]:
    """Make `folder` a file system of this size; skip the test where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", bytes(folder), b"tmpfs", 0, f"size={bytes_max}".encode()) != 0:
        pytest.skip("only root can mount a volume")
    try:
        yield
    finally:
        libc.umount2(bytes(folder), MNT_DETACH)
