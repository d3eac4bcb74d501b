"""Fixtures: a real Postgres with a database per test, a real NATS, the event loop the product runs on."""

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from noetl_cli.embedded import server as embedded_server
from noetl_cli.embedded.server import Server
from noetl_common.db import Pool, open_pool
from tests.object_stores import GcsServer, S3Server, gcs_server, s3_server
from tests.servers import Postgres, clone, create_empty, drop, end_with_parent, nats_server, shared_postgres


def pytest_configure(config: pytest.Config) -> None:
    """Tie an xdist worker to its controller, so that a killed run leaves no server behind."""
    if hasattr(config, "workerinput"):
        end_with_parent()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Postgres]:
    """The run's Postgres: TEST_DATABASE_URL's, or an embedded one shared by all xdist workers."""
    own = tmp_path_factory.getbasetemp()
    with shared_postgres(own if worker_id == "master" else own.parent) as server:
        yield server


@pytest.fixture
def dsn(postgres: Postgres) -> Iterator[str]:
    """A database of one's own: migrated, 16 shards, partitions for the present; dropped afterwards."""
    url = clone(postgres)
    yield url
    drop(postgres, url)


@pytest.fixture
def empty_dsn(postgres: Postgres) -> Iterator[str]:
    """A database of one's own without any table; dropped afterwards."""
    url = create_empty(postgres)
    yield url
    drop(postgres, url)


@pytest.fixture
async def pool(dsn: str) -> AsyncIterator[Pool]:
    """An open pool on `dsn`."""
    async with open_pool(dsn, size_max=8, name="test") as opened:
        yield opened


@pytest.fixture(scope="session")
def nats_url() -> Iterator[str]:
    """A NATS server with JetStream, one a worker; use subjects and streams of your own."""
    with nats_server() as server:
        yield server.url


@pytest.fixture
def own_nats() -> Iterator[Server]:
    """A NATS server for one test, which may stop it."""
    with nats_server() as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 server, one a worker; use buckets of your own."""
    with s3_server() as server:
        yield server


@pytest.fixture
def own_s3() -> Iterator[S3Server]:
    """An S3 server for one test, which may kill it."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def gcs() -> Iterator[GcsServer]:
    """An emulator of Google Cloud Storage, one a worker; use buckets of your own."""
    with gcs_server() as server:
        yield server


@pytest.fixture
def free_port() -> Callable[[], int]:
    """A function that returns a port nobody listens on now."""
    return embedded_server.free_port
