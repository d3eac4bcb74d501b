"""The public API, one file a resource; this is the one table of all its routes."""

from services.ingest.endpoints import Endpoint
from services.ingest.routes import (
    catalog,
    catalog_use,
    commands,
    credentials,
    end_execution,
    events,
    execute,
    execution_events,
    executions,
    health,
    replay,
    rerun,
    results,
    shards,
    stored_results,
    variables,
    workers,
)

ENDPOINTS: tuple[Endpoint, ...] = (
    *health.ENDPOINTS,
    *catalog.ENDPOINTS,
    *catalog_use.ENDPOINTS,
    *execute.ENDPOINTS,
    *rerun.ENDPOINTS,
    *executions.ENDPOINTS,
    *execution_events.ENDPOINTS,
    *end_execution.ENDPOINTS,
    *events.ENDPOINTS,
    *commands.ENDPOINTS,
    *workers.ENDPOINTS,
    *shards.ENDPOINTS,
    *results.ENDPOINTS,
    *stored_results.ENDPOINTS,
    *variables.ENDPOINTS,
    *replay.ENDPOINTS,
    *credentials.ENDPOINTS,
)
