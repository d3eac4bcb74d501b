"""Ingest's settings."""

from typing import Annotated, Literal

from noetl_common.config import DeathDetector, env
from noetl_common.store.config import Stores


class Config(Stores, frozen=True, kw_only=True):
    """What ingest can be told."""

    port: Annotated[int, env("NOETL_PORT", doc="The port the process listens on; 0: any free one.")] = 8082
    pool_size: Annotated[int, env("NOETL_INGEST_POOL_SIZE", doc="Postgres connections for requests and appends.")] = 12
    background_pool_size: Annotated[
        int, env("NOETL_INGEST_BACKGROUND_POOL_SIZE", doc="Postgres connections for routing.")
    ] = 6
    statement_timeout_s: Annotated[
        float, env("NOETL_STATEMENT_TIMEOUT_SEC", unit="s", doc="After this long Postgres gives up a statement.")
    ] = 30.0
    start_timeout_s: Annotated[
        float, env("NOETL_START_TIMEOUT_SEC", unit="s", doc="How long a start waits for the migrations.")
    ] = 120.0
    shard_lease_s: Annotated[
        float, env("NOETL_SHARD_LEASE_SEC", unit="s", doc="How long a shard stays with a process that went silent.")
    ] = 4.0
    death_detector: DeathDetector = True
    command_lease_s: Annotated[
        float, env("NOETL_COMMAND_LEASE_SEC", unit="s", doc="How long a command stays with a worker that went silent.")
    ] = 15.0
    starts_at_once: Annotated[
        int, env("NOETL_STARTS_AT_ONCE", doc="Starts of runs under way in a process; further ones get 429.")
    ] = 2_000
    starts_commands_due: Annotated[
        int, env("NOETL_STARTS_COMMANDS_DUE", doc="Commands due and not claimed in a pool, before starts get 429.")
    ] = 10_000
    starts_routing_lag: Annotated[
        int, env("NOETL_STARTS_ROUTING_LAG", doc="Inputs of a shard that routing is behind, before starts avoid it.")
    ] = 2_000
    auth: Annotated[
        Literal["none", "token"], env("NOETL_AUTH", doc="none: loopback only; token: bearer tokens with scopes.")
    ] = "none"
    auth_tokens: Annotated[
        str, env("NOETL_AUTH_TOKENS", doc='JSON: {"<token>": ["read", "write", "worker", "admin"]}.', secret=True)
    ] = ""
    insecure_bind: Annotated[
        bool, env("NOETL_INSECURE_BIND", doc="Allow NOETL_AUTH=none on an address that others can reach.")
    ] = False
    encryption_key: Annotated[
        str, env("NOETL_ENCRYPTION_KEY", doc="The key that wraps credentials: 32 bytes in base64.", secret=True)
    ] = ""
    template_env: Annotated[
        tuple[str, ...], env("NOETL_TEMPLATE_ENV", doc="Environment variables that templates may read, with commas.")
    ] = ()
