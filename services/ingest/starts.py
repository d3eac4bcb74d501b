"""Starts: from a request to run a playbook to its execution row and first input, committed together."""

import hashlib
import os
import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from noetl_common import metrics
from noetl_common.core.events import Envelope, Event
from noetl_common.core.parse import parse
from noetl_common.core.playbook import Playbook
from noetl_common.core.scope import system_names
from noetl_common.core.shard import hashed_id, shard_of
from noetl_common.core.values import INLINE_VALUE_BYTES_MAX, Value, fits_inline
from noetl_common.core.workload import effective_workload
from noetl_common.db import Pool, utc_now_text
from noetl_common.errors import Invalid, NotFound, TooLarge, Unavailable
from noetl_common.ids import mint_execution_id
from noetl_common.store.results import ResultStore
from noetl_common.wire import ResultRow, encode, ref_of
from services.ingest import store, store_catalog
from services.ingest.append import Appender, Start
from services.ingest.read_payloads import stored_row
from services.ingest.store_catalog import CatalogRow

WORKLOAD_LABEL = "workload"
WORKLOAD_BYTES_MAX = 4 * 1024 * 1024
IDEMPOTENCY_KEY_CHARACTERS_MAX = 200
IDS_TRIED_MAX = 5
PLAYBOOKS_MAX = 200


class Asked(msgspec.Struct, kw_only=True):
    """What a caller wants to run."""

    path: str = ""
    version: int | None = None
    catalog_id: int | None = None
    payload: dict[str, Any] = {}
    parent_execution_id: int | None = None
    idempotency_key: str | None = None


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
        self, pool: Pool, appender: Appender, *, shard_count: int, store: ResultStore, template_env: Sequence[str] = ()
    ) -> None:
        self._pool = pool
        self._appender = appender
        self._shard_count = shard_count
        self._store = store
        self._env = environ_of(template_env)
        self._playbooks: OrderedDict[int, Playbook] = OrderedDict()

    async def start(self, asked: Asked) -> Started:
        """Start the playbook; a repeated idempotency key starts nothing and returns the first run.

        Errors: NotFound for an unknown playbook; PlaybookError, Invalid, TooLarge; Unavailable.
        """
        key = _checked_key(asked.idempotency_key)
        entry = await self._entry(asked)
        playbook = self._playbook(entry)
        if key is not None:
            for found in await store.find_start(self._pool, 0, key):
                return _duplicate(found, entry, asked)
        for _attempt in range(IDS_TRIED_MAX):
            execution_id = mint_execution_id()
            nonce = secrets.token_hex(8)
            start = await self._prepared(asked, entry, playbook, execution_id=execution_id, key=key, nonce=nonce)
            event_id = await self._appender.start(start)
            if event_id:
                metrics.inc("noetl_executions_started_total")
                return Started(execution_id=execution_id, event_id=event_id, entry=entry)
            for found in await store.find_start(self._pool, execution_id, key):
                if found.nonce == nonce:  # our own commit, whose acknowledgement was lost
                    return Started(execution_id=execution_id, event_id=found.event_id or 0, entry=entry)
                if key is not None and found.idempotency_key == key:
                    return _duplicate(found, entry, asked)
        raise Unavailable(f"no free execution id in {IDS_TRIED_MAX} attempts")

    async def _entry(self, asked: Asked) -> CatalogRow:
        entry = await store_catalog.read_entry(
            self._pool, path=asked.path, version=asked.version, catalog_id=asked.catalog_id
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

    async def _prepared(
        self,
        asked: Asked,
        entry: CatalogRow,
        playbook: Playbook,
        *,
        execution_id: int,
        key: str | None,
        nonce: str,
    ) -> Start:
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
        value, rows = await self._stored(execution_id, workload)
        context = {
            "path": entry.path,
            "version": entry.version,
            "catalog_id": entry.catalog_id,
            "workload": msgspec.to_builtins(value),
            "depth": 0,
        }
        event = Event(
            execution_id=execution_id,
            event_type="playbook.started",
            status="STARTED",
            result=Envelope(status="STARTED", context=context),
            meta={"nonce": nonce, "asked": _digest(asked)},
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
            idempotency_key=key,
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


def _checked_key(key: str | None) -> str | None:
    if key is not None and not 0 < len(key) <= IDEMPOTENCY_KEY_CHARACTERS_MAX:
        raise Invalid(f"Idempotency-Key: expected 1 to {IDEMPOTENCY_KEY_CHARACTERS_MAX} characters, found {len(key)}")
    return key


def _digest(asked: Asked) -> str:
    """Return what tells one wish from another, whoever sends it and however often."""
    text = msgspec.json.encode(msgspec.structs.replace(asked, idempotency_key=None), order="deterministic")
    return hashlib.sha256(text).hexdigest()[:32]


def _duplicate(found: store.StartFound, entry: CatalogRow, asked: Asked) -> Started:
    """Return the run that the key started. Errors: Invalid when the key now comes with another wish."""
    if found.asked not in (None, _digest(asked)):
        raise Invalid(
            f"Idempotency-Key: expected the request that started execution {found.execution_id}, found another body"
        )
    metrics.inc("noetl_duplicate_suppressed_total", 1, guard="idempotency_key")
    started = msgspec.structs.replace(
        entry, catalog_id=found.catalog_id, path=found.path, version=found.version, content="", digest=""
    )
    return Started(execution_id=found.execution_id, event_id=found.event_id or 0, entry=started, is_duplicate=True)
