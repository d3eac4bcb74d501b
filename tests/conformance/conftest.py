"""Fixtures: one running stack for all conformance tests of a worker, and an HTTP API for playbooks to call."""

from collections.abc import Iterator

import httpx
import pytest

from noetl_cli.embedded.stack import Plan, throwaway_stack
from noetl_cli.state_dir import Running
from tests.conformance.stub_api import StubApi, stub_api

ALIASES = ("pg_local", "pg_k8s", "pg_noetl_k8s", "pg_auth", "pg_test", "test_postgres")


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A running stack."""
    with throwaway_stack(tmp_path_factory.mktemp("conformance"), Plan(owner="test")) as stack:
        assert stack.running is not None
        yield stack.running


@pytest.fixture(scope="session")
def database_url(running: Running) -> str:
    """The database that the credentials point at."""
    return running.database_url


@pytest.fixture(scope="session")
def api(running: Running) -> Iterator[httpx.Client]:
    """A client of a running stack that knows the Postgres credentials ALIASES and `nats_credential`."""
    url = httpx.URL(running.database_url.replace("postgresql://", "http://"))
    user, _, password = url.userinfo.decode().partition(":")
    data = {"db_host": url.host, "db_port": url.port, "db_user": user, "db_password": password}
    with httpx.Client(base_url=running.api_url, timeout=30) as client:
        for alias in ALIASES:
            body = {"name": alias, "type": "postgres", "data": {**data, "db_name": url.path.strip("/")}}
            assert client.post("/api/credentials", json=body).status_code == 200
        body = {"name": "nats_credential", "type": "nats", "data": {"nats_url": running.nats_url}}
        assert client.post("/api/credentials", json=body).status_code == 200
        yield client


@pytest.fixture(scope="session")
def stub() -> Iterator[StubApi]:
    """The HTTP API that playbooks call; tests that count requests or failures reset it first."""
    with stub_api() as served:
        yield served
