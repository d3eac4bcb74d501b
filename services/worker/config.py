"""The worker's settings."""

import os
from typing import Annotated

from noetl_common.config import DatabaseUrl, env
from noetl_common.store.config import Stores
from services.worker.tools.container import ContainerNamespace, ContainerRunner
from services.worker.tools.duckdb_session import MemoryBytesMax
from services.worker.tools.egress import HttpAllowHosts
from services.worker.tools.secret_sources import GcsBuckets, SecretsDir, SecretsEnv, SecretsGcp, SecretsVault


class Config(Stores, frozen=True, kw_only=True):
    """What a worker can be told. It needs no Postgres: it speaks to ingest only."""

    database_url: DatabaseUrl = ""
    server_url: Annotated[
        str,
        env("NOETL_SERVER_URL", doc="Where ingest answers; several, separated by commas, are tried in turn."),
    ] = "http://127.0.0.1:8082"
    api_token: Annotated[str, env("NOETL_API_TOKEN", doc="Bearer token for ingest's API.", secret=True)] = ""
    http_allow_hosts: HttpAllowHosts = ""
    secrets_env: SecretsEnv = ""
    secrets_dir: SecretsDir = ""
    secrets_gcp: SecretsGcp = ""
    secrets_vault: SecretsVault = ""
    gcs_buckets: GcsBuckets = ""
    container_runner: ContainerRunner = "kubernetes"
    container_namespace: ContainerNamespace = ""
    pool: Annotated[str, env("NOETL_WORKER_POOL", doc="The pool whose commands this worker claims.")] = "default"
    worker_id: Annotated[str, env("NOETL_WORKER_ID", doc="This worker's name; empty: a new random one.")] = ""
    slots: Annotated[int, env("NOETL_WORKER_SLOTS", doc="Commands that this worker runs at the same time.")] = 256
    claim_wait_s: Annotated[
        float, env("NOETL_CLAIM_WAIT_SEC", unit="s", doc="How long ingest may hold a claim when nothing waits.")
    ] = 1.0
    heartbeat_s: Annotated[
        float, env("NOETL_HEARTBEAT_SEC", unit="s", doc="How often the leases of this worker are renewed.")
    ] = 5.0
    stop_grace_s: Annotated[
        float, env("NOETL_WORKER_STOP_SEC", unit="s", doc="How long running commands may go on after the stop.")
    ] = 8.0
    cache_bytes_max: Annotated[
        int, env("NOETL_WORKER_CACHE_BYTES", unit="bytes", doc="Payloads kept in memory, by their JSON size.")
    ] = 64 * 1024 * 1024
    pipeline_calls_max: Annotated[
        int,
        env("NOETL_PIPELINE_CALLS_MAX", doc="Tool calls that one command may make, its retries and jumps included."),
    ] = 100_000
    tool_timeout_s: Annotated[
        float, env("NOETL_TOOL_TIMEOUT_SEC", unit="s", doc="Limit of a tool call that names none.")
    ] = 300.0
    python_timeout_s: Annotated[
        float, env("NOETL_PYTHON_TIMEOUT_SEC", unit="s", doc="Limit of a python tool call that names none.")
    ] = 300.0
    python_memory_bytes_max: Annotated[
        int,
        env("NOETL_PYTHON_MEMORY_BYTES", unit="bytes", doc="Address space of one python interpreter or shell process."),
    ] = 1024 * 1024 * 1024
    duckdb_memory_bytes_max: MemoryBytesMax = 512 * 1024 * 1024
    python_processes: Annotated[int, env("NOETL_PYTHON_PROCESSES", doc="Warm python interpreters; 0: one a core.")] = 0

    @property
    def interpreters(self) -> int:
        """How many python interpreters may run."""
        return self.python_processes or os.cpu_count() or 1
