"""Compression of payloads: gzip at its fastest, where it pays."""

import zlib

from noetl_common.errors import ReferenceCorrupt, TooLarge

COMPRESS_FROM_BYTES = 10 * 1024
# Below a tenth saved, reading faster is worth more than the bytes.
RATIO_MAX = 0.9
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
