"""Mint ids: the shell around core/shard.py that has the clock and the dice."""

import secrets

from noetl_common.clock import Clock, SystemClock
from noetl_common.core.shard import BUCKETS, snowflake


def mint_execution_id(clock: Clock | None = None) -> int:
    """Return a new execution id in a bucket drawn evenly; `execution`'s primary key catches the rare collision."""
    unix_ms = (clock or SystemClock()).unix_ms()
    return snowflake(unix_ms, node=secrets.randbelow(BUCKETS), seq=secrets.randbelow(4096))


def mint_id(clock: Clock | None = None) -> int:
    """Return a new catalog, credential or runtime id; a unique key catches the rare collision."""
    return mint_execution_id(clock)


def mint_instance(role: str) -> str:
    """Return the random name of one process start."""
    return f"{role}-{secrets.token_hex(6)}"
