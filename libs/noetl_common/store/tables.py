"""Parquet files of tables: written by groups of rows as they come, read by the groups that are wanted.

A column whose values one Parquet type says exactly has that type; every other one holds JSON text, and the file's
metadata names it. They also hold the rest of the payload, so that a file is the whole of it.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, overload

import msgspec

from noetl_common.core.tables import Frame, Parted
from noetl_common.errors import ReferenceCorrupt, TooLarge
from noetl_common.wire import encoded

GROUP_ROWS_MAX = 65_536
GROUP_BYTES_MAX = 8 * 1024 * 1024  # of the values in memory, before compression
TABLE_BYTES_MAX = 16 * 1024 * 1024 * 1024  # of one file
FRAME_BYTES_MAX = 1024 * 1024  # of a payload without its rows
FOOTER_BYTES_MAX = 64 * 1024 * 1024
TAIL_BYTES = 64 * 1024  # read first of a file: most footers are smaller
DECODED_ROWS = 1000  # at a time
METADATA_KEY = b"noetl"
_MAGIC = b"PAR1"
_INT64 = range(-(2**63), 2**63)
_KINDS = {bool: "bool", int: "int64", float: "double", str: "string"}

ReadPart = Callable[[int, int], Awaitable[bytes]]  # (offset, length)


class TableFile(msgspec.Struct, kw_only=True):
    """A finished file. Units: `bytes` and `sha256` are of the file; `sizes` the rows of each group."""

    file: Any
    bytes: int
    sha256: str
    sizes: list[int]


class TableWriter:
    """Writes rows to an unnamed temporary file, which is gone when it is closed, whatever happens. It blocks.

    `kinds` says of a column (by its place) what it will hold where the first rows hold only nulls.
    """

    def __init__(self, names: Sequence[str], *, kinds: Sequence[str] = ()) -> None:
        self._arrow, self._parquet = arrow()
        self.names = list(names)
        self._expected = list(kinds) or ["string"] * len(self.names)
        self._kinds: list[str] | None = None
        self._pending: list[Any] = []
        self._pending_bytes = 0
        self._pending_rows = 0
        self.sizes: list[int] = []
        self._open()

    @property
    def rows(self) -> int:
        """How many rows were added."""
        return sum(self.sizes) + self._pending_rows

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows, each the values of its columns. Errors: TooLarge over TABLE_BYTES_MAX."""
        if rows:
            self._add([list(column) for column in zip(*rows, strict=True)])

    def add_arrow(self, batch: Any) -> None:
        """Add a batch of Arrow whose columns JSON can say as they are: integers, booleans, finite numbers, text."""
        assert self._kinds is None or "json" not in self._kinds, "a batch of Arrow is of the kinds that were expected"
        if self._kinds is None:
            self._kinds = list(self._expected)
        self._take(
            self._arrow.RecordBatch.from_arrays(
                [column.cast(self._type(kind)) for column, kind in zip(batch.columns, self._kinds, strict=True)],
                schema=self._schema(),
            )
        )

    def seal(self) -> "SealedTable":
        """Return the table, all rows written; nothing can be added any more."""
        self._flush()
        if self._writer is None:
            self._start()
        before, data_bytes = self._sink.digest.copy(), self._sink.bytes
        self._writer.close()
        self._sink.file.flush()
        return SealedTable(self, self._sink.file, digest=before, data_bytes=data_bytes)

    def close(self) -> None:
        """Give up what was written."""
        if self._writer is not None and not self._sink.file.closed:
            self._writer.close()
        self._sink.file.close()

    @property
    def kinds(self) -> list[str]:
        """What each column holds: bool, int64, double, string or json."""
        return self._kinds or self._expected

    @property
    def schema(self) -> Any:
        """Arrow's schema of the file."""
        return self._schema()

    def _open(self) -> None:
        self._sink = _Sink(tempfile.TemporaryFile(prefix="noetl-table-"))  # noqa: SIM115 - closed by its owner
        self._writer: Any = None

    def _add(self, columns: list[list[Any]]) -> None:
        found = [self._kind(values) for values in columns]
        if self._kinds is None:
            self._kinds = [kind or expected for kind, expected in zip(found, self._expected, strict=True)]
        changed = [
            place
            for place, (kind, now) in enumerate(zip(found, self._kinds, strict=True))
            if kind not in ("", now) and now != "json"
        ]
        if changed:
            self._become_json(changed)
        arrays = [self._array(values, kind) for values, kind in zip(columns, self._kinds, strict=True)]
        self._take(self._arrow.RecordBatch.from_arrays(arrays, schema=self._schema()))

    def _take(self, batch: Any) -> None:
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes
        self._pending_rows += batch.num_rows
        if self._pending_bytes >= GROUP_BYTES_MAX or self._pending_rows >= GROUP_ROWS_MAX:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        if self._writer is None:
            self._start()
        table = self._arrow.Table.from_batches(self._pending, schema=self._schema())
        self._pending, self._pending_bytes, self._pending_rows = [], 0, 0
        for start in range(0, table.num_rows, GROUP_ROWS_MAX):
            group = table.slice(start, GROUP_ROWS_MAX)
            self._writer.write_table(group, row_group_size=GROUP_ROWS_MAX)
            self.sizes.append(group.num_rows)
        if self._sink.bytes > TABLE_BYTES_MAX:
            raise TooLarge(f"table: expected a file of at most {TABLE_BYTES_MAX} bytes, found more")

    def _start(self) -> None:
        self._writer = self._parquet.ParquetWriter(
            self._arrow.PythonFile(self._sink, mode="w"),
            self._schema(),
            compression="zstd",
            compression_level=1,
            write_page_checksum=True,
            store_schema=False,
        )

    def _become_json(self, places: list[int]) -> None:
        """Write again what is written so far, the columns at `places` as JSON text."""
        assert self._kinds is not None, "kinds are known once there are rows"
        self._flush()
        old, old_kinds = self._sink.file, self._kinds
        self._kinds = ["json" if place in places else kind for place, kind in enumerate(old_kinds)]
        if self._writer is None:
            return
        self._writer.close()
        old.flush()
        sizes, self.sizes = self.sizes, []
        self._open()
        written = self._parquet.ParquetFile(old)
        for number in range(len(sizes)):
            group = written.read_row_group(number, use_threads=False)
            for start in range(0, group.num_rows, DECODED_ROWS):
                part = group.slice(start, DECODED_ROWS)
                columns = [_values(column, kind) for column, kind in zip(part.columns, old_kinds, strict=True)]
                arrays = [self._array(values, kind) for values, kind in zip(columns, self._kinds, strict=True)]
                self._take(self._arrow.RecordBatch.from_arrays(arrays, schema=self._schema()))
        self._flush()
        old.close()

    def _kind(self, values: list[Any]) -> str:
        """Return the kind that says these values exactly, "" when all are null."""
        types = set(map(type, values)) - {type(None)}
        if not types:
            return ""
        kind = _KINDS.get(types.pop(), "json") if len(types) == 1 else "json"
        if kind == "int64":
            numbers = [value for value in values if value is not None]
            return kind if min(numbers) in _INT64 and max(numbers) in _INT64 else "json"
        if kind == "double":
            # JSON has no NaN and no infinity: as in every other payload, they become null.
            return kind
        return kind

    def _array(self, values: list[Any], kind: str) -> Any:
        if kind == "json":
            values = [None if value is None else encoded(value).decode() for value in values]
        elif kind == "double":
            values = [None if value is None or value - value != 0 else value for value in values]
        try:
            return self._arrow.array(values, type=self._type(kind))
        except UnicodeEncodeError:
            texts = [None if value is None else value.encode(errors="replace").decode() for value in values]
            return self._arrow.array(texts, type=self._type(kind))

    def _type(self, kind: str) -> Any:
        return getattr(self._arrow, {"bool": "bool_", "double": "float64", "json": "string"}.get(kind, kind))()

    def _schema(self) -> Any:
        pairs = zip(self.names, self.kinds, strict=True)
        return self._arrow.schema([(name, self._type(kind)) for name, kind in pairs])


class SealedTable:
    """A written table. Its rows can be read; `finished` makes it the file of a payload, as often as wanted."""

    def __init__(self, writer: TableWriter, file: BinaryIO, *, digest: Any, data_bytes: int) -> None:
        self._arrow, self._parquet = arrow()
        self._writer = writer
        self._digest = digest
        self._data_bytes = data_bytes
        self._reader = self._parquet.ParquetFile(file)
        self._file = file
        self._last: tuple[int, Group] | None = None
        self.names, self.kinds, self.sizes = writer.names, writer.kinds, writer.sizes

    def group(self, number: int) -> "Group":
        """Return the rows of a group; the last one read is kept."""
        if self._last is None or self._last[0] != number:
            table = self._reader.read_row_group(number, use_threads=False)
            self._last = number, Group(table, self.kinds)
        return self._last[1]

    def finished(self, part: Parted) -> TableFile | None:
        """Return the file with the rest of the payload in its metadata; None when that is too large to stand there."""
        told = {"body": part.body, "places": part.places, "kinds": self.kinds, "sizes": self.sizes, "bare": part.bare}
        metadata = encoded(told)
        if len(metadata) > FRAME_BYTES_MAX:
            return None
        # The footer names places from the start of the file, so that another one may follow the same groups.
        empty = self._arrow.BufferOutputStream()
        writer = self._parquet.ParquetWriter(empty, self._writer.schema, store_schema=False)
        writer.add_key_value_metadata({METADATA_KEY: metadata})
        writer.close()
        footer = self._parquet.read_metadata(self._arrow.BufferReader(empty.getvalue()))
        footer.append_row_groups(self._reader.metadata)
        out = self._arrow.BufferOutputStream()
        footer.write_metadata_file(out)
        text = bytes(out.getvalue())[len(_MAGIC) :]
        self._file.seek(self._data_bytes)
        self._file.truncate()
        self._file.write(text)
        self._file.flush()
        digest = self._digest.copy()
        digest.update(text)
        size = self._data_bytes + len(text)
        return TableFile(file=self._file, bytes=size, sha256=digest.hexdigest(), sizes=self.sizes)

    def copy_to(self, path: Path) -> None:
        """Copy the file, which holds the rows alone."""
        self._file.seek(0)
        with open(path, "wb") as copy:
            shutil.copyfileobj(self._file, copy, GROUP_BYTES_MAX)

    def close(self) -> None:
        """Let go of the file, and with it of what was written."""
        self._file.close()


class Group(Sequence[Any]):
    """The rows of one group, decoded when they are read; `bare` ones are values without a name."""

    def __init__(self, table: Any, kinds: Sequence[str], *, bare: bool = False) -> None:
        self._table = table
        self._kinds = kinds
        self._bare = bare
        self.bytes = int(table.nbytes)

    @overload
    def __getitem__(self, key: int) -> Any: ...
    @overload
    def __getitem__(self, key: slice) -> list[Any]: ...
    def __getitem__(self, key: int | slice) -> Any:
        if isinstance(key, slice):
            return [self[place] for place in range(len(self))[key]]
        if not 0 <= key < len(self):
            raise IndexError(key)
        return self._decoded(key, 1)[0]

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), DECODED_ROWS):
            yield from self._decoded(start, DECODED_ROWS)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def _decoded(self, start: int, count: int) -> list[Any]:
        part = self._table.slice(start, count)
        columns = [_values(column, kind) for column, kind in zip(part.columns, self._kinds, strict=True)]
        if self._bare:
            return columns[0]
        return [dict(zip(part.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


class Footer:
    """What the end of a file says: the payload without its rows, and where each group stands."""

    def __init__(self, metadata: Any, *, uri: str) -> None:
        self._metadata = metadata
        self._uri = uri
        try:
            told = msgspec.json.decode((metadata.metadata or {})[METADATA_KEY])
            self.frame = Frame(body=told["body"], places=told["places"], sizes=told["sizes"])
            self.kinds: list[str] = told["kinds"]
            self.bare: bool = told.get("bare", False)
        except (KeyError, TypeError, msgspec.DecodeError) as exc:
            raise ReferenceCorrupt(f"{uri}: expected a table of ours, found a Parquet file of another kind") from exc
        self.bytes = int(metadata.serialized_size)
        self.columns = dict(zip(metadata.schema.names, self.kinds, strict=True))

    def place_of(self, group: int) -> tuple[int, int]:
        """Return (offset, length) of a group in the file."""
        columns = [self._metadata.row_group(group).column(place) for place in range(self._metadata.num_columns)]
        spans = [
            (min(filter(None, (c.dictionary_page_offset, c.data_page_offset))), c.total_compressed_size)
            for c in columns
        ]
        start = min(offset for offset, _length in spans)
        return start, max(offset + length for offset, length in spans) - start

    def held_bytes(self, group: int) -> int:
        """Return how much memory a group takes, about."""
        return int(self._metadata.row_group(group).total_byte_size)

    def group(self, number: int, part: bytes) -> Group:
        """Return a group from its part of the file, every page checked. Errors: ReferenceCorrupt."""
        pa, pq = arrow()
        offset, length = self.place_of(number)
        if len(part) != length:
            raise ReferenceCorrupt(f"{self._uri}: expected {length} bytes from {offset} on, found {len(part)}")
        try:
            source = pa.PythonFile(_Window(part, offset), mode="r")
            file = pq.ParquetFile(source, metadata=self._metadata, page_checksum_verification=True)
            return Group(file.read_row_group(number, use_threads=False), self.kinds, bare=self.bare)
        except (OSError, pa.ArrowException) as exc:
            raise ReferenceCorrupt(f"{self._uri}: rows of group {number} cannot be read: {exc}") from exc


async def read_footer(read: ReadPart, *, size: int, uri: str) -> Footer:
    """Return what the end of a file of `size` bytes says. Errors: ReferenceCorrupt, and those of `read`."""
    tail = await read(max(size - TAIL_BYTES, 0), min(size, TAIL_BYTES))
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if tail[-4:] != _MAGIC or length > min(size, FOOTER_BYTES_MAX):
        raise ReferenceCorrupt(f"{uri}: expected a Parquet file of {size} bytes, found another end")
    if length > len(tail):
        tail = await read(size - length, length)
    pa, pq = arrow()
    try:
        source = pa.PythonFile(_Window(tail, size - len(tail)), mode="r")
        return Footer(pq.read_metadata(source), uri=uri)
    except (OSError, pa.ArrowException) as exc:
        raise ReferenceCorrupt(f"{uri}: the end of the Parquet file cannot be read: {exc}") from exc


def arrow() -> tuple[Any, Any]:
    """Return (pyarrow, pyarrow.parquet), imported where tables are first used: most runs have none."""
    pa, pq = import_module("pyarrow"), import_module("pyarrow.parquet")
    pa.set_cpu_count(1)
    return pa, pq


class _Sink:
    """A file that keeps the digest and the number of the bytes written to it."""

    closed = False

    def __init__(self, file: Any) -> None:
        self.file = file
        self.digest = hashlib.sha256()
        self.bytes = 0

    def write(self, part: Any) -> int:
        view = memoryview(part)
        self.digest.update(view)
        self.bytes += len(view)
        self.file.write(view)
        return len(view)

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        """Leave the file open: its owner reads it."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


class _Window:
    """A part of a file as the whole file; what is outside is not there."""

    closed = False

    def __init__(self, part: bytes, offset: int) -> None:
        self._part = part
        self._offset = offset
        self._place = 0

    def read(self, count: int = -1) -> bytes:
        start = self._place - self._offset
        if start < 0:
            raise OSError(f"byte {self._place} is not in the part that was read")
        found = self._part[start : start + count] if count >= 0 else self._part[start:]
        self._place += len(found)
        return found

    def seek(self, place: int, whence: int = 0) -> int:
        end = self._offset + len(self._part)
        self._place = {0: 0, 1: self._place, 2: end}[whence] + place
        return self._place

    def tell(self) -> int:
        return self._place

    def close(self) -> None:
        """Do nothing."""

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True


def _values(column: Any, kind: str) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if kind == "json":
        return [None if value is None else msgspec.json.decode(value) for value in values]
    return values
