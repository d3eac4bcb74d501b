"""Read payloads back through the store, and look for those that nothing names."""

import hashlib
import time
from typing import Any

from noetl_common.core.shard import minted_at_ms
from noetl_common.core.values import Tier
from noetl_common.db import json_text
from noetl_common.errors import ConfigError, ReferenceCorrupt, ReferenceNotAvailable, Unavailable
from noetl_common.store.keys import execution_in
from noetl_common.store.results import ResultStore
from noetl_common.verify.reading import Row, Scope, Snapshot
from noetl_common.verify.report import Finding, Looked

CHUNK_BYTES = 4 * 1024 * 1024
PAGE_PAYLOADS = 1_000
ORPHANS_MAX = 10_000
PREFIX = "exec/"


async def judge_payload(store: ResultStore, row: Row) -> Finding | None:
    """Read the payload of a row; return what is wrong with it.

    Errors: Unavailable when its tier does not answer; ConfigError when its tier is not configured here.
    """
    try:
        size, digest = await _measured(store, row)
    except ReferenceCorrupt as error:
        return _finding("payloads.digest", row, expected=f"sha256 {row['sha256']}", found=str(error))
    except ReferenceNotAvailable as error:
        if isinstance(error.__cause__, Unavailable):
            raise Unavailable(str(error)) from error
        if error.__cause__ is None and row["physical_uri"]:
            raise ConfigError(str(error)) from error
        return _finding("payloads.missing", row, expected=f"{row['bytes']} bytes", found=str(error))
    if size != row["bytes"]:
        return _finding("payloads.size", row, expected=f"{row['bytes']} bytes", found=f"{size} bytes")
    if digest != row["sha256"]:
        return _finding("payloads.digest", row, expected=f"sha256 {row['sha256']}", found=f"sha256 {digest}")
    return None


async def _measured(store: ResultStore, row: Row) -> tuple[int, str]:
    """Return (size, digest) of a payload; one that is stored as it is, is read a part at a time."""
    inline, uri = row["inline_payload"], row["physical_uri"]
    if inline is not None:
        return len(inline), hashlib.sha256(inline).hexdigest()
    if not uri:
        raise ReferenceNotAvailable("the row has neither a payload nor its address")
    if row["compression"] != "none":
        return len(await store.read(uri, row["sha256"], row["compression"])), row["sha256"]
    digest, size = hashlib.sha256(), 0
    while part := await store.read_range(uri, offset=size, length=CHUNK_BYTES):
        digest.update(part)
        size += len(part)
    return size, digest.hexdigest()


async def judge_payloads(
    snapshot: Snapshot,
    present: Snapshot,
    scope: Scope,
    *,
    store: ResultStore,
    wanted: int | None,
    bytes_max: int,
    looked: Looked,
) -> list[Finding]:
    """Read payloads of a sample of rows, `wanted` None: of all; return what is wrong. Errors: as judge_payload."""
    findings: list[Finding] = []
    args: dict[str, Any] = {"low": scope.low, "high": scope.high, "leaving": scope.leaving}
    async for row in snapshot.stream("sample_payloads", **args, wanted=wanted, seed=time.time_ns()):
        if row["bytes"] > bytes_max:
            looked.payloads_skipped += 1
            continue
        looked.payloads += 1
        looked.payload_bytes += row["bytes"]
        finding = await judge_payload(store, row)
        if finding is not None and await _is_named(present, row):
            findings.append(finding)
    return findings


async def _is_named(present: Snapshot, row: Row) -> bool:
    """Return whether the row is there still: a result deleted while we read is no finding."""
    [found] = await present.rows("is_named", execution_id=row["execution_id"], ref_id=row["ref_id"])
    return bool(found["is_named"])


async def find_orphans(present: Snapshot, scope: Scope, store: ResultStore) -> dict[str, Row]:
    """Return {address: row} of payloads that no row names though their run is over; ORPHANS_MAX at most.

    Errors: Unavailable when a tier does not answer.
    """
    prefix = PREFIX if scope.is_all else f"{PREFIX}{scope.low}/"
    found: dict[str, Row] = {}
    for tier in store.tier_names():
        after = ""
        while uris := await _page(store, tier, prefix, after):
            found |= await _unnamed(present, uris)
            if len(uris) < PAGE_PAYLOADS or len(found) >= ORPHANS_MAX:
                break
            after = uris[-1]
    return found


async def judge_orphans(present: Snapshot, candidates: dict[str, Row]) -> list[Finding]:
    """Return a warning for each candidate that no row names now either."""
    found: list[Finding] = []
    uris = list(candidates)
    for place in range(0, len(uris), PAGE_PAYLOADS):
        for uri, row in (await _unnamed(present, uris[place : place + PAGE_PAYLOADS])).items():
            hours = (time.time_ns() / 1e6 - minted_at_ms(row["execution_id"])) / 3_600_000
            noted = f", noted by the compactor at {row['seen_at']:%Y-%m-%dT%H:%M:%SZ}" if row["seen_at"] else ""
            found.append(
                Finding(
                    check="payloads.orphan",
                    severity="warning",
                    shard_id=-1 if row["shard_id"] is None else row["shard_id"],
                    execution_id=row["execution_id"],
                    reference=uri,
                    expected="a row that names it",
                    found=f"none; its run began {hours:.1f} h ago{noted}",
                )
            )
    return found


async def _page(store: ResultStore, tier: Tier, prefix: str, after: str) -> list[str]:
    return await store.list_uris(tier, prefix, after=after, limit=PAGE_PAYLOADS)


async def _unnamed(present: Snapshot, uris: list[str]) -> dict[str, Row]:
    owners = [{"uri": uri, "execution_id": execution_in(uri)} for uri in uris]
    known = [one for one in owners if one["execution_id"] is not None]
    return {row["uri"]: row for row in await present.rows("find_unnamed", payloads=json_text(known))}


def _finding(check: str, row: Row, *, expected: str, found: str) -> Finding:
    return Finding(
        check=check,
        shard_id=-1 if row["shard_id"] is None else row["shard_id"],
        execution_id=row["execution_id"],
        reference=f"{row['ref']} at {row['physical_uri']}" if row["physical_uri"] else row["ref"],
        expected=expected,
        found=found,
    )
