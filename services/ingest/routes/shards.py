"""Runtime state: who owns which shard and how far behind it is; drain, cordon and uncordon a replica."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noetl_common.core.assignment import Standing
from noetl_common.errors import NotFound
from services.ingest import store_shards as store
from services.ingest.endpoints import ADMIN, READ, Api, Endpoint
from services.ingest.requests import answer


class ShardState(msgspec.Struct, kw_only=True):
    """One shard in one role. `handovers`: changes of its owner so far; `lag_inputs`: not yet routed or projected.

    `checkpoint_age_ms`: of the compactor, since it last folded something.
    """

    role: str
    shard_id: int
    owner: str | None
    epoch: int
    handovers: int
    leased_ms: int | None
    owned_ms: int | None
    lag_inputs: int | None
    lag_ms: int | None
    checkpoint_age_ms: int | None


class ReplicaState(msgspec.Struct, kw_only=True):
    """One process. `standing` is ready, cordoned or draining; `holds_lock`: its death is noticed at once."""

    role: str
    instance: str
    standing: str
    shards: int
    holds_lock: bool
    silent_ms: int


class RuntimeState(msgspec.Struct, kw_only=True):
    """GET /api/runtime/shards. A shard whose lease ran out has no owner."""

    leader: str | None
    replicas: list[ReplicaState]
    shards: list[ShardState]


class Asked(msgspec.Struct, kw_only=True):
    """What is wanted with a replica now, and how many shards it still owns."""

    role: str
    instance: str
    standing: str
    shards: int


async def list_shards(api: Api, _request: Request) -> Response:
    """Show every shard of every role, and the processes that share them."""
    replicas = [_replica(row) for row in await store.read_replicas(api.pool)]
    shards = [_shard(row) for row in await store.read_shards(api.pool)]
    leader = next((one.instance for one in replicas if one.role == "meta" and one.shards), None)
    return answer(RuntimeState(leader=leader, replicas=replicas, shards=shards))


async def drain(api: Api, request: Request) -> Response:
    """Have a replica's shards moved to the others, and give it no new ones."""
    return await _ask(api, request, "draining")


async def cordon(api: Api, request: Request) -> Response:
    """Give a replica no new shards; it keeps those it has."""
    return await _ask(api, request, "cordoned")


async def uncordon(api: Api, request: Request) -> Response:
    """Let a replica have its share again."""
    return await _ask(api, request, "ready")


async def _ask(api: Api, request: Request, standing: Standing) -> Response:
    instance = request.path_params["instance"]
    row = await store.set_standing(api.pool, instance, standing=standing)
    if row is None:
        living = [one["instance"] for one in await store.read_replicas(api.pool) if one["role"] != "meta"]
        raise NotFound(
            f"expected a replica that shares shards ({', '.join(living) or 'there is none'}), found {instance[:200]!r}"
        )
    return answer(msgspec.convert(row, Asked))


def _shard(row: dict[str, Any]) -> ShardState:
    is_leased = row["leased_s"] is not None and row["leased_s"] > 0
    return ShardState(
        role=row["role"],
        shard_id=row["shard_id"],
        owner=row["owner"] if is_leased else None,
        epoch=row["epoch"],
        handovers=max(0, row["epoch"] - 1),
        leased_ms=_ms(row["leased_s"]) if is_leased else None,
        owned_ms=_ms(row["owned_s"]) if is_leased else None,
        lag_inputs=None if row["lag_inputs"] is None else max(0, row["lag_inputs"]),
        lag_ms=_ms(row["lag_s"]),
        checkpoint_age_ms=_ms(row["checkpoint_age_s"]),
    )


def _replica(row: dict[str, Any]) -> ReplicaState:
    return ReplicaState(
        role=row["role"],
        instance=row["instance"],
        standing=row["standing"],
        shards=row["shards"],
        holds_lock=row["holds_lock"],
        silent_ms=_ms(row["silent_s"]) or 0,
    )


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else max(0, round(seconds * 1000))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/runtime/shards",
        handler=list_shards,
        summary="Show who owns which shard, and how far behind it is.",
        scopes=READ,
        answer=RuntimeState,
    ),
    *(
        Endpoint(
            method="POST",
            path=f"/api/runtime/replicas/{{instance}}/{handler.__name__}",
            handler=handler,
            summary=summary,
            scopes=ADMIN,
            answer=Asked,
        )
        for handler, summary in (
            (drain, "Move a replica's shards to the others."),
            (cordon, "Give a replica no new shards."),
            (uncordon, "Let a replica have its share of the shards again."),
        )
    ),
)
