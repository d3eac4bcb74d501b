"""Queries of documents, credentials and runtimes. Rows in, records out, nothing decided."""

from datetime import datetime
from typing import Any

import msgspec

from noetl_common.db import Pool, json_text, transaction, violates
from noetl_common.ids import mint_id
from noetl_common.secrets import Sealed
from services.ingest.store import SQL

LIST_MAX = 1000
VERSION_ATTEMPTS_MAX = 20


class CatalogRow(msgspec.Struct, kw_only=True):
    """One version of a document."""

    catalog_id: int
    path: str
    version: int
    kind: str
    content: str = ""
    digest: str = ""
    meta: dict[str, Any] = {}
    created_at: datetime | None = None
    archived_at: datetime | None = None


class CredentialRow(msgspec.Struct, kw_only=True):
    """A secret as it is listed: everything but its data."""

    id: int
    name: str
    type: str
    meta: dict[str, Any]
    tags: list[str]
    description: str
    created_at: datetime
    updated_at: datetime


async def register(pool: Pool, document: CatalogRow) -> tuple[CatalogRow, bool]:
    """Store a document as the next version of its path; return it and whether it is new.

    The same text as the newest version is that version. Two writers at once: the unique key decides, who loses
    takes the number after.
    """
    for attempt in range(VERSION_ATTEMPTS_MAX):
        args = {
            "catalog_id": mint_id(),
            "path": document.path,
            "kind": document.kind,
            "content": document.content,
            "digest": document.digest,
            "meta": json_text(document.meta),
        }
        try:
            async with pool.connection() as conn:
                row = await (await conn.execute(SQL["insert_catalog_entry"], args)).fetchone()
        except Exception as error:
            if violates(error, "catalog") and attempt + 1 < VERSION_ATTEMPTS_MAX:
                continue
            raise
        if row is not None:
            new = msgspec.structs.replace(document, catalog_id=row["catalog_id"], version=row["version"])
            return new, True
        newest = await read_entry(pool, path=document.path)
        if newest is not None and newest.digest == document.digest:
            return newest, False
    raise AssertionError("the unique key on (path, version) lets one of two writers through")


async def read_entry(
    pool: Pool, *, path: str = "", version: int | None = None, catalog_id: int | None = None
) -> CatalogRow | None:
    """Return a document by its id, by path and version, or the newest of a path."""
    name = "read_entry_by_id" if catalog_id else "read_entry" if version else "read_newest_entry"
    args = {"catalog_id": catalog_id, "path": path, "version": version}
    async with pool.connection() as conn:
        row = await (await conn.execute(SQL[name], args)).fetchone()
    return CatalogRow(**row) if row is not None else None


async def list_entries(
    pool: Pool,
    *,
    kind: str | None = None,
    path: str | None = None,
    archived: bool = False,
    limit: int = LIST_MAX,
    offset: int = 0,
) -> list[CatalogRow]:
    """Return documents without their content, by path, newest version first; `archived`: those out of use as well."""
    args = {"kind": kind, "path": path, "archived": archived, "limit": limit, "offset": offset}
    async with pool.connection() as conn:
        rows = await (await conn.execute(SQL["list_entries"], args)).fetchall()
    return [CatalogRow(**row) for row in rows]


async def archive(pool: Pool, *, path: str, version: int | None, restored: bool = False) -> list[int] | None:
    """Take a version of a path (or all) out of use, or bring it back; return the versions changed, None: no such."""
    args = {"path": path, "version": version}
    async with transaction(pool) as conn:
        if not await (await conn.execute(SQL["list_versions"], args)).fetchall():
            return None
        query = SQL["restore_entries" if restored else "archive_entries"]
        return sorted(row["version"] for row in await (await conn.execute(query, args)).fetchall())


async def upsert_credential(pool: Pool, fields: dict[str, Any], sealed: Sealed) -> CredentialRow:
    """Store a sealed secret under its name."""
    args = {**fields, "id": mint_id(), "meta": json_text(fields["meta"]), **msgspec.structs.asdict(sealed)}
    async with pool.connection() as conn:
        row = await (await conn.execute(SQL["upsert_credential"], args)).fetchone()
    assert row is not None
    return CredentialRow(**row)


async def list_credentials(pool: Pool, *, type_: str | None, q: str | None) -> list[CredentialRow]:
    """Return secrets by name, without their data."""
    args = {"type": type_, "q": q, "limit": LIST_MAX}
    async with pool.connection() as conn:
        rows = await (await conn.execute(SQL["list_credentials"], args)).fetchall()
    return [CredentialRow(**row) for row in rows]


async def read_credential(pool: Pool, name: str) -> tuple[CredentialRow, Sealed] | None:
    """Return a secret, sealed, by its name or id."""
    async with pool.connection() as conn:
        row = await (await conn.execute(SQL["read_credential"], {"name": name})).fetchone()
    if row is None:
        return None
    sealed = Sealed(bytes(row.pop("data_encrypted")), bytes(row.pop("key_wrapped")), row.pop("key_id"))
    return CredentialRow(**row), sealed


async def delete_credential(pool: Pool, name: str) -> dict[str, Any] | None:
    """Forget a secret; return its {id, name}, None when there was none."""
    async with pool.connection() as conn:
        return await (await conn.execute(SQL["delete_credential"], {"name": name})).fetchone()


async def register_runtime(pool: Pool, fields: dict[str, Any]) -> dict[str, Any]:
    """Write a live process's row; return its {runtime_id, kind, name, runtime}."""
    args = {
        **fields,
        "runtime_id": mint_id(),
        "labels": json_text(fields["labels"]),
        "runtime": json_text(fields["runtime"]),
    }
    async with pool.connection() as conn:
        row = await (await conn.execute(SQL["register_runtime"], args)).fetchone()
    assert row is not None
    return row


async def beat_runtime(pool: Pool, *, kind: str, name: str) -> dict[str, Any] | None:
    """Note that a registered process lives; return its row, None when it is not registered."""
    async with pool.connection() as conn:
        return await (await conn.execute(SQL["beat_runtime"], {"kind": kind, "name": name})).fetchone()


async def forget_runtime(pool: Pool, *, kind: str, name: str) -> bool:
    """Take a process off the list; return False when it was not on it."""
    async with pool.connection() as conn:
        return await (await conn.execute(SQL["forget_runtime"], {"kind": kind, "name": name})).fetchone() is not None


async def list_runtimes(pool: Pool, *, kind: str, status: str | None = None) -> list[dict[str, Any]]:
    """Return the live processes of a kind."""
    async with pool.connection() as conn:
        args = {"kind": kind, "status": status, "limit": LIST_MAX}
        return await (await conn.execute(SQL["list_runtimes"], args)).fetchall()
