"""The transfer tool: rows from one endpoint into a table of another, in chunks, in one transaction of the target."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Literal, cast, get_args

import msgspec
import psycopg

from noetl_common.core.outcome import Outcome
from noetl_common.errors import DependencyMissing, Invalid, NoetlError, NotFound, ToolFailed
from services.worker.tools import Call, failed
from services.worker.tools.postgres import failure_of
from services.worker.tools.transfer_endpoints import SOURCES as OTHER_SOURCES
from services.worker.tools.transfer_endpoints import TARGETS as OTHER_TARGETS
from services.worker.tools.transfer_endpoints import Mode, Row, Writing
from services.worker.tools.transfer_snowflake import snowflake_source, snowflake_target

CHUNK_ROWS = 1000
CHUNK_ROWS_MAX = 100_000
Side = Literal["source", "target"]
SOURCES = {**OTHER_SOURCES, "snowflake": snowflake_source}
TARGETS = {**OTHER_TARGETS, "snowflake": snowflake_target}


class Plan(msgspec.Struct, kw_only=True):
    """What one transfer is asked to do. `mapping` is {column of the target: field of the source}, empty for all."""

    source: dict[str, Any]
    target: dict[str, Any]
    mode: Mode
    mapping: dict[str, str]
    key: tuple[str, ...]
    chunk_rows: int


async def run(call: Call) -> Outcome:
    """Return {rows_transferred, chunks, columns, mode, source, target}.

    Errors: none is raised, and then nothing was written; error.kind is that of the endpoint's own tool, or config.
    """
    try:
        plan = _plan(call.config)
        async with asyncio.timeout(call.timeout_s):
            return Outcome(data=await _transfer(call, plan))
    except TimeoutError:
        message = f"transfer: not done within {call.timeout_s:g} s; nothing was written"
        return failed("db_timeout", message, code="TRANSFER_TIMEOUT", retryable=True)
    except psycopg.Error as exc:
        return failure_of(exc)
    except ToolFailed as exc:
        return Outcome(status="error", error={**exc.error, "message": f"transfer: {exc}{_place(exc)}"})
    except NoetlError as exc:
        is_config = isinstance(exc, NotFound | Invalid | DependencyMissing)
        message = f"transfer: {exc}{_place(exc)}"
        return failed("config" if is_config else "sql", message, code=exc.code, retryable=exc.status == 503)


async def _transfer(call: Call, plan: Plan) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        with _at("source"):
            source = await stack.enter_async_context(SOURCES[plan.source["type"]](call, plan.source))
        with _at("target"):
            target = await stack.enter_async_context(TARGETS[plan.target["type"]](call, plan.target))
        columns = list(plan.mapping)
        rows, chunks = 0, 0
        parts = source.chunks(plan.chunk_rows)
        while True:
            with _at("source"):
                chunk = await anext(parts, None)
            if chunk is not None and not chunks:
                columns = columns or list(chunk[0])
                _check_fields(chunk, plan.mapping)
            if not chunks:
                with _at("target"):
                    await target.begin(Writing(columns=columns, mode=plan.mode, key=plan.key, is_json=source.is_json))
            if chunk is None:
                break
            picked = [_picked(row, columns, plan.mapping, rows + index) for index, row in enumerate(chunk)]
            with _at("target"):
                await target.write(picked)
            rows, chunks = rows + len(chunk), chunks + 1
        with _at("target"):
            await target.commit()
    names = {"source": plan.source["type"], "target": plan.target["type"], "mode": plan.mode}
    return {"status": "success", "rows_transferred": rows, "chunks": chunks, "columns": columns, **names}


def _picked(row: Row, columns: list[str], mapping: dict[str, str], number: int) -> tuple[Any, ...]:
    if mapping:
        return tuple(_field(row, mapping[column])[1] for column in columns)
    if extra := [name for name in row if name not in columns]:
        raise Invalid(f"source: row {number}: expected the fields of the first row, found {extra[0]!r} as well")
    return tuple(row.get(column) for column in columns)


def _check_fields(chunk: list[Row], mapping: dict[str, str]) -> None:
    # A row may lack a field; one that no row has is a mistake in the mapping.
    for column, field in mapping.items():
        if not any(_field(row, field)[0] for row in chunk):
            known = ", ".join(sorted(chunk[0])[:20])
            raise Invalid(f"mapping.{column}: expected a field of the source ({known}), found {field!r}")


def _field(row: Row, path: str) -> tuple[bool, Any]:
    """Return whether a row has a field, and its value; `a.b` is b of a, unless the row has a field of that name."""
    if path in row:
        return True, row[path]
    value: Any = row
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return False, None
        value = value[name]
    return True, value


def _plan(config: dict[str, Any]) -> Plan:
    source, target = _endpoint(config, "source"), _endpoint(config, "target")
    if (source["type"], target["type"]) == ("duckdb", "duckdb"):
        raise Invalid("expected another target than duckdb for a source of duckdb: there, ATTACH and INSERT do it")
    mode = str(config.get("mode") or target.get("mode") or "append").lower()
    if mode not in get_args(Mode):
        raise Invalid(f"mode: expected append, replace or upsert, found {mode!r}")
    mapping = config.get("mapping") or target.get("mapping") or {}
    if not isinstance(mapping, dict) or not all(isinstance(field, str) for field in mapping.values()):
        raise Invalid(f"mapping: expected {{column of the target: field of the source}}, found {mapping!r}"[:500])
    key = config.get("key") or target.get("key") or target.get("conflict_key") or []
    key = [key] if isinstance(key, str) else key
    if not isinstance(key, list) or not all(isinstance(name, str) for name in key):
        raise Invalid(f"key: expected names of columns, found {key!r}"[:500])
    chunk_rows = config.get("chunk_size", CHUNK_ROWS)
    if not isinstance(chunk_rows, int) or isinstance(chunk_rows, bool) or not 0 < chunk_rows <= CHUNK_ROWS_MAX:
        raise Invalid(f"chunk_size: expected 1 to {CHUNK_ROWS_MAX}, found {chunk_rows!r}")
    return Plan(
        source=source, target=target, mode=cast(Mode, mode), mapping=mapping, key=tuple(key), chunk_rows=chunk_rows
    )


def _endpoint(config: dict[str, Any], side: Side) -> dict[str, Any]:
    given = config.get(side)
    if not isinstance(given, dict):
        raise Invalid(f"{side}: expected a mapping with `type`, found {type(given).__name__}")
    kind = str(given.get("type") or given.get("kind") or "").lower()
    known = SOURCES if side == "source" else TARGETS
    if kind not in known:
        raise Invalid(f"{side}.type: expected {', '.join(sorted(known))}, found {kind!r}")
    return {**given, "type": kind}


@contextmanager
def _at(side: Side) -> Iterator[None]:
    try:
        yield
    except (NoetlError, psycopg.Error) as exc:
        exc.add_note(side)
        raise


def _place(exc: Exception) -> str:
    return "".join(f" ({note})" for note in getattr(exc, "__notes__", ()))
