"""Compression of payloads: gzip at its fastest, where it pays."""

import tempfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from noetl_common.errors import ReferenceCorrupt, TooLarge

COMPRESS_FROM_BYTES = 10 * 1024
# Below a tenth saved, reading faster is worth more than the bytes.
RATIO_MAX = 0.9
PART_BYTES = 8 * 1024 * 1024  # of a large payload that is in memory at a time, besides the payload itself
_LEVEL = 1
_GZIP = 31  # zlib's window bits with the gzip frame


def compressed(payload: bytes) -> tuple[bytes, str]:
    """Return (what to store, its compression): "gzip" for a large payload that shrinks, else "none".

    The same payload always gives the same bytes: no time stamp is in the frame.
    """
    if len(payload) < COMPRESS_FROM_BYTES:
        return payload, "none"
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    packed = packer.compress(payload) + packer.flush()
    return (packed, "gzip") if len(packed) < RATIO_MAX * len(payload) else (payload, "none")


def compressed_file(payload: BinaryIO, size: int) -> BinaryIO | None:
    """Return what `compressed` does of a file of `size` bytes: a file, which its caller closes, or None for "none"."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    packed = tempfile.TemporaryFile(prefix="noetl-payload-")  # noqa: SIM115 - closed by the caller
    payload.seek(0)
    try:
        while part := payload.read(PART_BYTES):
            packed.write(packer.compress(part))
        packed.write(packer.flush())
        if packed.tell() < RATIO_MAX * size:
            return packed
    except BaseException:
        packed.close()
        raise
    packed.close()
    return None


class Expander:
    """Undoes a compression part by part. Errors: ReferenceCorrupt, as `expanded`."""

    def __init__(self, compression: str) -> None:
        if compression not in ("none", "gzip"):
            raise ReferenceCorrupt(f"expected compression none or gzip, found {compression!r}")
        self._unpacker = zlib.decompressobj(_GZIP) if compression == "gzip" else None

    def parts(self, stored: bytes) -> Iterator[bytes]:
        """Yield what the next part of the stored bytes stands for, PART_BYTES at most at a time."""
        if self._unpacker is None:
            yield stored
            return
        while stored:
            try:
                yield self._unpacker.decompress(stored, PART_BYTES)
            except zlib.error as exc:
                raise ReferenceCorrupt(f"not a gzip stream: {exc}") from exc
            stored = self._unpacker.unconsumed_tail

    def check_end(self) -> None:
        """Return when nothing is missing."""
        if self._unpacker is not None and not self._unpacker.eof:
            raise ReferenceCorrupt("the gzip stream ends early")


def expanded(stored: bytes, compression: str, *, bytes_max: int) -> bytes:
    """Return the payload of what was stored.

    Errors: ReferenceCorrupt when it is not whole or of an unknown compression; TooLarge over `bytes_max`.
    """
    if compression == "none":
        return stored
    if compression != "gzip":
        raise ReferenceCorrupt(f"expected compression none or gzip, found {compression!r}")
    unpacker = zlib.decompressobj(_GZIP)
    try:
        payload = unpacker.decompress(stored, bytes_max + 1)
    except zlib.error as exc:
        raise ReferenceCorrupt(f"not a gzip stream: {exc}") from exc
    if len(payload) > bytes_max:
        raise TooLarge(f"payload: expected at most {bytes_max} bytes, found more")
    if not unpacker.eof:
        raise ReferenceCorrupt("the gzip stream ends early")
    return payload
