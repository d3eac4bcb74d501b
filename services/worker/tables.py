"""Rows on their way from a tool to the tier: in memory while they are few, then in a temporary Parquet file."""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from noetl_common.core.tables import Frame, Parted, Row, Rows, listed, parted, rows_in
from noetl_common.errors import TooLarge
from noetl_common.store.tables import FRAME_BYTES_MAX, GROUP_BYTES_MAX, SealedTable, TableFile, TableWriter
from noetl_common.wire import encoded

SPILL_BYTES = 4 * 1024 * 1024  # of JSON, after which rows go to a file
SPILL_ROWS = 20_000
TABLE_ROWS_MAX = 1_000_000_000  # of one result
WRITTEN_ROWS = 5_000  # at a time, of rows that are in memory already
LIST_BYTES_MIN = 1024 * 1024  # of JSON whose longest list is stored as a table, to be read by parts


class Hiding(Protocol):
    """What a command must not tell (services.worker.keychain.Concealed)."""

    @property
    def count(self) -> int:
        """How many secrets are known by now."""

    def may_touch(self, text: str) -> bool:
        """Return False when nothing that is hidden stands in JSON text."""

    def without(self, value: Any) -> Any:
        """Return JSON data with the secrets hidden."""


class SpilledRows(Rows):
    """Rows in a temporary file. `secrets` is how many secrets were known when they were written."""

    def __init__(self, sealed: SealedTable, *, secrets: int) -> None:
        super().__init__(sealed.sizes, sealed.group)
        self.sealed = sealed
        self.secrets = secrets


class Tables:
    """The files of one command's tables. All go when it ends."""

    def __init__(self, hiding: Hiding | None = None) -> None:
        self._hiding = hiding
        self._sinks: list[Sink] = []

    def sink(self, columns: Sequence[str], kinds: Sequence[str] = ()) -> "Sink":
        """Return where a tool puts the rows of one result; `kinds` as TableWriter has them."""
        made = Sink(columns, kinds, hiding=self._hiding)
        self._sinks.append(made)
        return made

    def told(self, payload: Any) -> Any:
        """Return a payload whose tables hold no secret, those included that were learnt after they were written.

        It blocks when there are such.
        """
        part = parted(payload)
        if part is None or not isinstance(part.rows, SpilledRows) or self._hiding is None:
            return payload
        if part.rows.secrets == self._hiding.count:
            return payload
        sink = self.sink(part.names, part.rows.sealed.kinds)
        for group in range(len(part.rows.sizes)):
            sink.add([tuple(row.values()) for row in part.rows.sealed.group(group)])
        return Frame(body=part.body, places=part.places, sizes=[]).filled(sink.finish())

    def close(self) -> None:
        """Let go of every file."""
        for sink in self._sinks:
            sink.close()
        self._sinks.clear()


class Sink:
    """Takes the rows of one result. It blocks while it writes; one thread at a time uses it."""

    def __init__(self, columns: Sequence[str], kinds: Sequence[str], *, hiding: Hiding | None) -> None:
        last = {name: place for place, name in enumerate(columns)}
        # Of several columns of one name the last one is shown, in the place of the first.
        self._places = list(last.values()) if len(last) < len(columns) else None
        self._names = list(last)
        self._kinds = [kinds[place] for place in last.values()] if kinds else []
        self._hiding = hiding
        self._held: list[Sequence[Any]] = []
        self._held_bytes = 0
        self._writer: TableWriter | None = None
        self.count = 0

    @property
    def is_spilled(self) -> bool:
        """True once rows stand in a file."""
        return self._writer is not None

    @property
    def takes_arrow(self) -> bool:
        """True when a batch of Arrow of the kinds that were told can be written as it is."""
        writer, hiding = self._writer, self._hiding
        is_plain = self._places is None and (hiding is None or not hiding.count)
        return is_plain and writer is not None and writer.kinds == self._kinds

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows, each the values of the columns. Errors: TooLarge."""
        if self.hold(rows):
            self.write()

    def hold(self, rows: Sequence[Sequence[Any]]) -> bool:
        """Keep rows in memory; return True when it is time to `write` them. Errors: TooLarge."""
        if not rows:
            return False
        self.count += len(rows)
        if self.count > TABLE_ROWS_MAX:
            raise TooLarge(f"a result has more than {TABLE_ROWS_MAX} rows, expected at most that")
        self._held += rows
        # One row in a hundred stands for its neighbours: weighing each would cost as much as writing it.
        self._held_bytes += sum(len(encoded(row)) for row in rows[::100]) * len(rows) // len(rows[::100])
        return self._held_bytes >= SPILL_BYTES or len(self._held) >= SPILL_ROWS

    def add_arrow(self, batch: Any) -> None:
        """Add a batch of Arrow when `takes_arrow`."""
        self.count += batch.num_rows
        self.write()
        self._file().add_arrow(batch)

    def finish(self) -> list[Row] | SpilledRows:
        """Return the rows: a list of few, else rows that are read from the file."""
        if self._writer is None:
            return [dict(zip(self._names, row, strict=True)) for row in map(self._shown, self._held)]
        self.write()
        return SpilledRows(self._writer.seal(), secrets=self._hiding.count if self._hiding is not None else 0)

    def close(self) -> None:
        """Give up what was written."""
        if self._writer is not None:
            self._writer.close()

    def write(self) -> None:
        """Write what is held to the file."""
        rows = list(map(self._shown, self._held)) if self._places is not None else self._held
        hiding = self._hiding
        if hiding is not None and hiding.count and hiding.may_touch(encoded(rows).decode()):
            rows = hiding.without(rows)
        self._file().add(rows)
        self._held, self._held_bytes = [], 0

    def _file(self) -> TableWriter:
        if self._writer is None:
            self._writer = TableWriter(self._names, kinds=self._kinds)
        return self._writer

    def _shown(self, row: Sequence[Any]) -> Sequence[Any]:
        return row if self._places is None else [row[place] for place in self._places]


async def table_file(payload: Any, *, size: int = 0) -> tuple[TableFile, Parted] | None:
    """Return a payload with rows as a file, and its parts; None for one that must be JSON.

    `size` is that of its JSON, 0 when its rows are in a file: from LIST_BYTES_MIN on the items of a list are rows.
    The caller closes the file of rows that were in memory (SpilledRows keep theirs).
    """
    found = await asyncio.to_thread(_table_of, payload, size)
    return None if found is None or found[0] is None else (found[0], found[1])


def _table_of(payload: Any, size: int) -> tuple[TableFile | None, Parted] | None:
    part = parted(payload)
    if part is None and size >= LIST_BYTES_MIN:
        part = listed(payload)
    if part is None or rows_in(part.body):
        return None
    if isinstance(part.rows, SpilledRows):
        return part.rows.sealed.finished(part), part
    if size > FRAME_BYTES_MAX and len(encoded(part.body)) > FRAME_BYTES_MAX:
        return None  # known before any of it is written
    return _file_of(part, size), part


def _file_of(part: Parted, size: int) -> TableFile | None:
    # A batch is about as large as a group: rows of documents come by the few.
    count = max(1, min(WRITTEN_ROWS, len(part.rows) * GROUP_BYTES_MAX // max(size, 1)))
    writer = TableWriter(part.names)
    try:
        for start in range(0, len(part.rows), count):
            rows = part.rows[start : start + count]
            writer.add([(row,) for row in rows] if part.bare else [tuple(row.values()) for row in rows])
        sealed = writer.seal()
        file = sealed.finished(part)
    except BaseException:
        writer.close()
        raise
    if file is None:
        sealed.close()
    return file
