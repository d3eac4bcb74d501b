"""The arithmetic of ids: which shard an execution lives in, and what an event id is made of.

Two layouts, both positive 63-bit integers (docs/adr/0001-ids-under-the-shard-lock.md):

* execution, catalog and reference ids: ``ms since 2024 << 22 | bucket or node(10) << 12 | seq(12)``
* event ids: ``shard(8) << 55 | seq(40) << 15 | ord(15)``; ord 0 is an input, 1.. its consequences
"""

import hashlib
from typing import NewType

ExecutionId = NewType("ExecutionId", int)
EventId = NewType("EventId", int)
CommandId = NewType("CommandId", int)
RefId = NewType("RefId", int)
ShardId = NewType("ShardId", int)

EPOCH_MS = 1_704_067_200_000  # 2024-01-01T00:00:00Z
BUCKETS = 1024
SHARDS_MAX = 256
ORD_MAX = (1 << 15) - 1
SEQ_MAX = (1 << 40) - 1
ID_MAX = (1 << 63) - 1


def snowflake(unix_ms: int, *, node: int, seq: int) -> int:
    """Return the id minted at `unix_ms`; for an execution, `node` is its bucket.

    Errors: ValueError when a part does not fit its field.
    """
    if unix_ms < EPOCH_MS or not 0 <= node < BUCKETS or not 0 <= seq < 4096:
        raise ValueError(f"expected ms >= {EPOCH_MS}, node < 1024, seq < 4096; found {unix_ms}, {node}, {seq}")
    return (unix_ms - EPOCH_MS) << 22 | node << 12 | seq


def minted_at_ms(id_: int) -> int:
    """Return the unix milliseconds an execution, catalog or reference id was minted at."""
    return (id_ >> 22) + EPOCH_MS


def shard_of(execution_id: int, shard_count: int) -> ShardId:
    """Return the shard of an execution: one shift, one mask, the same in every language."""
    return ShardId((execution_id >> 12 & (BUCKETS - 1)) % shard_count)


def check_shard_count(shard_count: int) -> int:
    """Return `shard_count` if a cluster may have it. Errors: ValueError unless a power of two <= 256."""
    if not 1 <= shard_count <= SHARDS_MAX or shard_count & (shard_count - 1):
        raise ValueError(f"shard count: expected a power of two up to {SHARDS_MAX}, found {shard_count}")
    return shard_count


def event_id(shard_id: int, seq: int, ord_: int = 0) -> EventId:
    """Return the id of input `seq` (ord 0) of a shard, or of its consequence number `ord_`."""
    assert 0 <= shard_id < SHARDS_MAX and 0 < seq <= SEQ_MAX and 0 <= ord_ <= ORD_MAX
    return EventId(shard_id << 55 | seq << 15 | ord_)


def last_id(shard_id: int, seq: int) -> EventId:
    """Return the greatest event id that input `seq` or its consequences can have (seq 0: before all)."""
    return EventId(shard_id << 55 | seq << 15 | ORD_MAX)


def shard_in(event_id_: int) -> ShardId:
    """Return the shard an event id was minted in."""
    return ShardId(event_id_ >> 55)


def seq_in(event_id_: int) -> int:
    """Return the gapless per-shard sequence number in an event id."""
    return event_id_ >> 15 & SEQ_MAX


def ord_in(event_id_: int) -> int:
    """Return 0 for an input, the consequence number otherwise."""
    return event_id_ & ORD_MAX


def hashed_id(*parts: object) -> int:
    """Return 63 bits of SHA-256 over `parts`: the same cause always gets the same id, never 0."""
    text = "|".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1 or 1


def partition_bounds(unix_ms: int, width_hours: int) -> tuple[int, int]:
    """Return the [low, high) execution ids of the partition that ids minted at `unix_ms` fall in."""
    width_ms = width_hours * 3_600_000
    low_ms = (unix_ms - EPOCH_MS) // width_ms * width_ms
    return low_ms << 22, low_ms + width_ms << 22
