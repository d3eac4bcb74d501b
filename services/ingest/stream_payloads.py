"""Large payloads as answers: sent part by part, so that this process never holds one whole."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from typing import IO
from uuid import uuid4

from noetl_common.core.tables import TABLE_TYPE
from noetl_common.store.results import STREAMED_BYTES_MIN, ResultStore
from noetl_common.store.tables import Footer, ReadPart, read_footer
from noetl_common.wire import ResultRow, encoded
from services.ingest.read_payloads import parts_of

SENT_BYTES = 1024 * 1024  # at a time


async def payload_parts(store: ResultStore, row: ResultRow) -> AsyncIterator[bytes] | None:
    """Return the JSON of a stored payload in parts; None for one that is small enough to be read whole.

    What can be checked before the first part is sent has been: the digest of JSON, the end of a table's file. A page of
    a table that is damaged breaks the answer off. Errors: ReferenceNotAvailable, ReferenceCorrupt.
    """
    if row.content_type == TABLE_TYPE:
        part = parts_of(store, row)
        return _table_parts(await read_footer(part, size=row.bytes, uri=row.physical_uri), part)
    if row.inline is not None or row.bytes <= STREAMED_BYTES_MIN:
        return None
    file = tempfile.TemporaryFile(prefix="noetl-payload-")  # noqa: SIM115 - closed by who sends it
    try:
        await store.read_into(file, row.physical_uri, row.sha256, compression=row.compression)
    except BaseException:
        file.close()
        raise
    return _file_parts(file)


async def _file_parts(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        file.seek(0)
        while part := await asyncio.to_thread(file.read, SENT_BYTES):
            yield part


async def _table_parts(footer: Footer, part: ReadPart) -> AsyncIterator[bytes]:
    # A text that nobody else could have written stands for the rows, wherever they belong.
    mark = uuid4().hex
    before, *behind = encoded(footer.frame.filled(mark)).split(encoded(mark))
    yield before
    for text in behind:
        yield b"["
        for number in range(len(footer.frame.sizes)):
            group = footer.group(number, await part(*footer.place_of(number)))
            rows = await asyncio.to_thread(lambda group=group: encoded(list(group)))  # type: ignore[misc]
            yield (b"," if number else b"") + rows[1:-1]
        yield b"]" + text
