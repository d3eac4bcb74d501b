"""Starts: from a request to run a playbook to its execution row and first input, committed together."""

import asyncio
import hashlib
import os
import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from noetl_common import metrics
from noetl_common.core.events import Envelope, Event
from noetl_common.core.groups import group_of
from noetl_common.core.parse import parse
from noetl_common.core.playbook import Playbook
from noetl_common.core.scope import system_names
from noetl_common.core.shard import hashed_id, shard_of
from noetl_common.core.values import INLINE_VALUE_BYTES_MAX, Value, fits_inline
from noetl_common.core.workload import effective_workload
from noetl_common.db import Pool, utc_now_text
from noetl_common.errors import Invalid, NoetlError, NotFound, TooLarge, Unavailable
from noetl_common.store.results import ResultStore
from noetl_common.wire import ResultRow, encode, ref_of
from services.ingest import store, store_catalog
from services.ingest.admission import Admission
from services.ingest.append import Appender
from services.ingest.read_payloads import stored_row
from services.ingest.shared_reads import SharedReads
from services.ingest.store_catalog import CatalogRow
from services.ingest.works import Start

WORKLOAD_LABEL = "workload"
WORKLOAD_BYTES_MAX = 4 * 1024 * 1024
IDEMPOTENCY_KEY_CHARACTERS_MAX = 200
IDS_TRIED_MAX = 5
STARTS_AT_A_STRETCH = 16
PLAYBOOKS_MAX = 200


class Asked(msgspec.Struct, kw_only=True):
    """What a caller wants to run."""

    path: str = ""
    version: int | None = None
    catalog_id: int | None = None
    payload: dict[str, Any] = {}
    parent_execution_id: int | None = None
    priority: int | None = None
    idempotency_key: str | None = None


class Wish(msgspec.Struct, kw_only=True):
    """A start on its way: what is wanted, what of, and the id and the mark that it is tried under."""

    index: int
    asked: Asked
    entry: CatalogRow
    playbook: Playbook
    execution_id: int = 0
    nonce: str = ""


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The run that came of it, or that an earlier request with the same key had started."""

    execution_id: int
    event_id: int
    entry: CatalogRow
    is_duplicate: bool = False


def environ_of(names: Sequence[str]) -> dict[str, str]:
    """Return the variables of the environment that workload templates may read."""
    return {name: os.environ[name] for name in names if name in os.environ}


def answer_of(started: Started) -> dict[str, Any]:
    """Return what the API says of a start."""
    return {
        "execution_id": str(started.execution_id),
        "status": "duplicate" if started.is_duplicate else "started",
        "duplicate": started.is_duplicate,
        "commands_generated": 0 if started.is_duplicate else 1,
        "event_id": str(started.event_id),
        "path": started.entry.path,
        "version": started.entry.version,
        "catalog_id": str(started.entry.catalog_id),
    }


class Starter:
    """Starts executions. Parsed playbooks are kept for a while: a version never changes."""

    def __init__(
        self,
        pool: Pool,
        appender: Appender,
        *,
        shard_count: int,
        store: ResultStore,
        admission: Admission | None = None,
        template_env: Sequence[str] = (),
    ) -> None:
        self._pool = pool
        self._appender = appender
        self._shard_count = shard_count
        self._store = store
        self.admission = admission or Admission(shard_count=shard_count)
        self._env = environ_of(template_env)
        self._playbooks: OrderedDict[int, Playbook] = OrderedDict()
        self._entries: SharedReads[CatalogRow | None] = SharedReads()

    async def start(self, asked: Asked) -> Started:
        """Start the playbook; a repeated idempotency key starts nothing and returns the first run.

        Errors: NotFound for an unknown playbook; PlaybookError, Invalid, TooLarge; Unavailable; Overloaded.
        """
        [found] = await self.start_many([asked])
        if isinstance(found, BaseException):
            raise found
        return found

    async def start_many(self, wishes: Sequence[Asked]) -> list[Started | BaseException]:
        """Start playbooks, those of a shard in one transaction; return what `start` returns or raises, for each.

        Of those that share an idempotency key the first is started.
        Errors: Overloaded when too many starts are under way; nothing was begun then.
        """
        with self.admission.starting(len(wishes)):
            found: dict[int, Started | BaseException] = {}
            pending = await self._not_started(await self._named(wishes, found), found)
            while pending:
                first, pending = _one_of_each_key(pending)
                turn = first
                for _attempt in range(IDS_TRIED_MAX):
                    if turn:
                        turn = await self._attempt(turn, found)
                for wish in turn:
                    found[wish.index] = Unavailable(f"no free execution id in {IDS_TRIED_MAX} attempts")
                pending = _not_refused(first, pending, found)
                pending = await self._not_started(pending, found)
        return [found[index] for index in range(len(wishes))]

    async def _named(self, wishes: Sequence[Asked], found: dict[int, Started | BaseException]) -> list[Wish]:
        """Return the wishes with their playbooks; `found` gets those that cannot be started."""
        pending: list[Wish] = []
        entries: dict[tuple[str, int | None, int | None], CatalogRow] = {}
        for index, asked in enumerate(wishes):
            try:
                _check_key(asked.idempotency_key)
                named = (asked.path, asked.version, asked.catalog_id)
                entry = entries[named] = entries.get(named) or await self._entry(asked)
                playbook = self._playbook(entry)
                pending.append(Wish(index=index, asked=asked, entry=entry, playbook=playbook))
            except NoetlError as refusal:
                found[index] = refusal
        return pending

    async def _not_started(self, wishes: list[Wish], found: dict[int, Started | BaseException]) -> list[Wish]:
        """Return the wishes that nothing was started for yet; `found` gets the others."""
        ids = [wish.execution_id for wish in wishes if wish.execution_id]
        keys = [wish.asked.idempotency_key for wish in wishes if wish.asked.idempotency_key is not None]
        known = await store.find_starts(self._pool, ids, keys) if ids or keys else []
        return _without_duplicates(wishes, known, found)

    async def _attempt(self, pending: Sequence[Wish], found: dict[int, Started | BaseException]) -> list[Wish]:
        """Try to start each wish under a fresh id; return those whose id was taken."""
        ready: list[Wish] = []
        starts: list[Start] = []
        for number, wish in enumerate(pending):
            if number % STARTS_AT_A_STRETCH == STARTS_AT_A_STRETCH - 1:
                await asyncio.sleep(0)  # rendering is pure computing: others have their turn
            try:
                self.admission.check_pools({step.pool for step in wish.playbook.steps.values()})
                wish.execution_id, wish.nonce = self.admission.draw_id(), secrets.token_hex(8)
                starts.append(await self._prepared(wish))
                ready.append(wish)
            except NoetlError as refusal:
                found[wish.index] = refusal
        left: list[Wish] = []
        for wish, answer in zip(ready, await self._appender.start_many(starts), strict=True):
            if isinstance(answer, BaseException):
                found[wish.index] = answer
            elif answer:
                metrics.inc("noetl_executions_started_total")
                found[wish.index] = Started(execution_id=wish.execution_id, event_id=answer, entry=wish.entry)
            else:
                left.append(wish)
        return await self._not_started(left, found)

    async def _entry(self, asked: Asked) -> CatalogRow:
        if "\0" in asked.path:
            raise Invalid(f"expected the path of a playbook, found {asked.path[:80]!r}", pointer="/path")
        named = (asked.path, asked.version, asked.catalog_id)
        entry = await self._entries.read(
            named, lambda: store_catalog.read_entry(self._pool, path=named[0], version=named[1], catalog_id=named[2])
        )
        if entry is None:
            wanted = asked.path or f"catalog id {asked.catalog_id}"
            of = f" version {asked.version}" if asked.version else ""
            raise NotFound(f"expected a playbook, found none at {wanted}{of}")
        if entry.archived_at is not None:
            found = f"{entry.path} version {entry.version}, which is archived"
            raise NotFound(f"expected a playbook that can be started, found {found}: restore it")
        if entry.kind.lower() != "playbook":
            raise Invalid(f"{entry.path}: expected a Playbook, found a {entry.kind}", pointer="/path")
        return entry

    def _playbook(self, entry: CatalogRow) -> Playbook:
        playbook = self._playbooks.get(entry.catalog_id)
        if playbook is None:
            playbook, _findings = parse(entry.content)
            self._playbooks[entry.catalog_id] = playbook
            if len(self._playbooks) > PLAYBOOKS_MAX:
                self._playbooks.popitem(last=False)
        return playbook

    async def _prepared(self, wish: Wish) -> Start:
        asked, entry, playbook, execution_id = wish.asked, wish.entry, wish.playbook, wish.execution_id
        now_text = utc_now_text()
        system = system_names(
            execution_id=execution_id,
            catalog_id=entry.catalog_id,
            path=entry.path,
            version=entry.version,
            parent_execution_id=asked.parent_execution_id or 0,
            env=self._env,
            now=lambda: now_text,
        )
        workload = effective_workload(playbook.workload, asked.payload, execution_id=execution_id, system=system)
        group = group_of(playbook, workload, path=entry.path, system=system)
        value, rows = await self._stored(execution_id, workload)
        context: dict[str, Any] = {
            "path": entry.path,
            "version": entry.version,
            "catalog_id": entry.catalog_id,
            "workload": msgspec.to_builtins(value),
            "depth": 0,
        }
        if asked.priority is not None:
            context["priority"] = asked.priority
        if group is not None:
            context["group"] = msgspec.to_builtins(group)
        event = Event(
            execution_id=execution_id,
            event_type="playbook.started",
            status="STARTED",
            result=Envelope(status="STARTED", context=context),
            meta={"nonce": wish.nonce, "asked": _digest(asked)},
            dedup_key="start",
            catalog_id=entry.catalog_id,
            parent_execution_id=asked.parent_execution_id or 0,
            event_time=now_text,
        )
        row = store.ExecutionRow(
            execution_id=execution_id,
            shard_id=shard_of(execution_id, self._shard_count),
            catalog_id=entry.catalog_id,
            path=entry.path,
            version=entry.version,
            parent_execution_id=asked.parent_execution_id,
            idempotency_key=asked.idempotency_key,
            group=group,
        )
        return Start(execution=row, event=event, rows=rows)

    async def _stored(self, execution_id: int, workload: Mapping[str, Any]) -> tuple[Value, list[ResultRow]]:
        """Return the workload as a value, with the row it stands in unless it is small enough for the event."""
        text = encode(workload)
        if len(text) > WORKLOAD_BYTES_MAX:
            raise TooLarge(f"workload: expected at most {WORKLOAD_BYTES_MAX} bytes of JSON, found {len(text)}")
        if fits_inline(text, INLINE_VALUE_BYTES_MAX):
            return Value(msgspec.json.decode(text)), []
        row = await stored_row(
            self._store,
            text,
            execution_id=execution_id,
            step=WORKLOAD_LABEL,
            ref_id=hashed_id(execution_id, "workload"),
        )
        return Value(ref=ref_of(row)), [row]


def _check_key(key: str | None) -> None:
    if key is not None and "\0" in key:
        raise Invalid(f"Idempotency-Key: expected a text without NUL, found {key[:80]!r}", pointer="/idempotency_key")
    if key is not None and not 0 < len(key) <= IDEMPOTENCY_KEY_CHARACTERS_MAX:
        raise Invalid(f"Idempotency-Key: expected 1 to {IDEMPOTENCY_KEY_CHARACTERS_MAX} characters, found {len(key)}")


def _one_of_each_key(wishes: Sequence[Wish]) -> tuple[list[Wish], list[Wish]]:
    """Return the first wish of each idempotency key with all that have none, and those that wait for its outcome."""
    keys: set[str] = set()
    turn: list[Wish] = []
    behind: list[Wish] = []
    for wish in wishes:
        key = wish.asked.idempotency_key
        (behind if key in keys else turn).append(wish)
        if key is not None:
            keys.add(key)
    return turn, behind


def _not_refused(
    first: Sequence[Wish], behind: Sequence[Wish], found: dict[int, Started | BaseException]
) -> list[Wish]:
    """Return those behind for which it is worth asking; `found` gives the others what the first of their key got."""
    away = {wish.asked.idempotency_key: found.get(wish.index) for wish in first}
    left: list[Wish] = []
    for wish in behind:
        answer = away[wish.asked.idempotency_key]
        if isinstance(answer, Unavailable):
            found[wish.index] = answer
        else:
            left.append(wish)
    return left


def _without_duplicates(
    wishes: Sequence[Wish], known: Sequence[store.StartFound], found: dict[int, Started | BaseException]
) -> list[Wish]:
    """Return the wishes that nothing was started for; `found` gets the others: our own commits, and repeated keys."""
    by_key = {start.idempotency_key: start for start in known if start.idempotency_key is not None}
    by_nonce = {start.nonce: start for start in known if start.nonce is not None}
    left: list[Wish] = []
    for wish in wishes:
        if wish.nonce in by_nonce:  # our own commit, whose acknowledgement was lost
            start = by_nonce[wish.nonce]
            event_id = start.event_id or 0
            found[wish.index] = Started(execution_id=start.execution_id, event_id=event_id, entry=wish.entry)
        elif wish.asked.idempotency_key in by_key:
            try:
                found[wish.index] = _duplicate(by_key[wish.asked.idempotency_key], wish.entry, wish.asked)
            except Invalid as refusal:
                found[wish.index] = refusal
        else:
            left.append(wish)
    return left


def _digest(asked: Asked) -> str:
    """Return what tells one wish from another, whoever sends it and however often."""
    wish = {**msgspec.to_builtins(asked), "idempotency_key": None}
    if asked.priority is None:
        del wish["priority"]  # which earlier releases did not know: their keys still hold
    text = msgspec.json.encode(wish, order="deterministic")
    return hashlib.sha256(text).hexdigest()[:32]


def _duplicate(found: store.StartFound, entry: CatalogRow, asked: Asked) -> Started:
    """Return the run that the key started. Errors: Invalid when the key now comes with another wish."""
    if found.asked not in (None, _digest(asked)):
        message = f"expected the request that started execution {found.execution_id}, found another body"
        raise Invalid(f"Idempotency-Key: {message}", pointer="/idempotency_key")
    metrics.inc("noetl_duplicate_suppressed_total", 1, guard="idempotency_key")
    started = msgspec.structs.replace(
        entry, catalog_id=found.catalog_id, path=found.path, version=found.version, content="", digest=""
    )
    return Started(execution_id=found.execution_id, event_id=found.event_id or 0, entry=started, is_duplicate=True)
