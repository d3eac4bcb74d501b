"""What a route is: its place in the API, who may call it, and the parts of the process it works with."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noetl_common.db import Pool
from noetl_common.secrets import Vault
from noetl_common.store.results import ResultStore
from services.ingest.append import Appender
from services.ingest.auth import Guard, Permission
from services.ingest.bells import Bells
from services.ingest.claims import Claims
from services.ingest.starts import Starter


class Api(msgspec.Struct, kw_only=True):
    """The parts of the process that routes work with. `projected`: rung by shard when its read models moved."""

    pool: Pool
    appender: Appender
    claims: Claims
    starter: Starter
    store: ResultStore
    vault: Vault
    guard: Guard
    shard_count: int
    projected: Bells = msgspec.field(default_factory=Bells)


Handler = Callable[[Api, Request], Awaitable[Response]]
READ: tuple[Permission, ...] = ("read", "write", "worker")
WRITE: tuple[Permission, ...] = ("write",)
EXECUTE: tuple[Permission, ...] = ("write", "worker")
WORKER: tuple[Permission, ...] = ("worker",)
ADMIN: tuple[Permission, ...] = ("admin",)
OPEN: tuple[Permission, ...] = ()


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One route. The table of all of them makes the application and its OpenAPI document."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    handler: Handler
    summary: str
    scopes: tuple[Permission, ...]
    body: Any = None
    answer: Any = None
    query: Mapping[str, str] = {}
