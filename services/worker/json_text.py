"""The JSON of a result, made part by part: a large one goes to a file, and never stands in memory beside its value."""

import asyncio
import hashlib
import tempfile
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

import msgspec

from noetl_common.store.results import STREAMED_BYTES_MIN
from noetl_common.wire import encoded

PART_ITEMS = 256  # of a list, encoded at a time
PART_CHARS = 256 * 1024  # a longer text is encoded by itself
SPLIT_DEPTH_MAX = 6  # of containers that are taken apart


class JsonText(msgspec.Struct):
    """JSON text: `body`, or for a large one all of `file`. Units: `size` in bytes; `sha256` is of the text."""

    size: int = 0
    sha256: str = ""
    body: bytes = b""
    file: BinaryIO | None = None

    def close(self) -> None:
        """Let go of the file."""
        if self.file is not None:
            self.file.close()


async def json_text(value: Any) -> JsonText:
    """Return the JSON of a value, in a file when it has more than STREAMED_BYTES_MIN; its caller closes it."""
    if _is_long(value, SPLIT_DEPTH_MAX):
        return await asyncio.to_thread(_written, value)
    body = encoded(value)
    return JsonText(len(body), hashlib.sha256(body).hexdigest(), body)


def json_parts(value: Any, depth: int = SPLIT_DEPTH_MAX) -> Iterator[bytes]:
    """Yield the JSON of a value, as `encoded` has it, in parts of a few items each."""
    if type(value) is list and _is_long(value, depth):
        yield b"["
        for start in range(0, len(value), PART_ITEMS):
            yield b"," if start else b""
            part = value[start : start + PART_ITEMS]
            if len(value) > PART_ITEMS and not _is_long(part, depth - 1):
                yield encoded(part)[1:-1]
                continue
            for number, item in enumerate(part):
                yield b"," if number else b""
                yield from json_parts(item, depth - 1)
        yield b"]"
    elif type(value) is dict and _is_long(value, depth) and all(type(name) is str for name in value):
        yield b"{"
        for number, (name, item) in enumerate(value.items()):
            yield (b"," if number else b"") + encoded(name) + b":"
            yield from json_parts(item, depth - 1)
        yield b"}"
    else:
        yield encoded(value)


def _written(value: Any) -> JsonText:
    digest, held, size = hashlib.sha256(), bytearray(), 0
    file: BinaryIO | None = None
    try:
        for part in json_parts(value):
            digest.update(part)
            size += len(part)
            held += part
            if len(held) > STREAMED_BYTES_MIN or (file is not None and len(held) > PART_CHARS):
                file = file or tempfile.TemporaryFile(prefix="noetl-json-")  # noqa: SIM115 - closed by who takes it
                file.write(held)
                held.clear()
        if file is None:
            return JsonText(size, digest.hexdigest(), bytes(held))
        file.write(held)
    except BaseException:
        if file is not None:
            file.close()
        raise
    return JsonText(size, digest.hexdigest(), b"", file)


def _is_long(value: Any, depth: int) -> bool:
    """Return whether a value is worth being taken apart: it has many items somewhere, or a long text."""
    kind = type(value)
    if kind is str:
        return len(value) > PART_CHARS
    if depth <= 0 or (kind is not list and kind is not dict):
        return False
    if len(value) > PART_ITEMS:
        return True
    return any(_is_long(part, depth - 1) for part in islice(value.values() if kind is dict else value, PART_ITEMS))
