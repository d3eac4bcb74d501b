"""Two of each server role: killed, frozen, and their Postgres killed under them; the run ends, each item once."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import httpx
import psycopg
import pytest

from noetl_cli.embedded.stack import Plan, Stack
from noetl_cli.state_dir import StateDir
from tests.system import test_kills as kills

FROZEN_S = 6.0  # a lease and a half
T = TypeVar("T")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    state = StateDir(tmp_path_factory.mktemp("replicas"))
    stack = Stack(state, Plan(owner="test", replicas={"meta": 2, "ingest": 2, "compute": 2, "worker": 2}))
    try:
        running = stack.start()
        content = {"content": kills.PLAYBOOK}
        answer = httpx.post(f"{running.api_url}/api/catalog/register", json=content, timeout=30)
        assert answer.status_code == 200, answer.text
        yield stack
    finally:
        stack.stop()


def half_way(stack: Stack) -> int:
    """Start a run and return its id when half of its items are done."""
    # A run may end before an ingest that was killed under it is back.
    kills.wait(stack, lambda: answers(stack), timeout_s=30, what="an ingest that answers")
    execution_id = kills.execute(stack)
    done = kills.ITEMS // 2
    kills.wait(stack, lambda: kills.completed(stack, execution_id) >= done, timeout_s=60, what="half of the loop")
    return execution_id


def answers(stack: Stack) -> bool:
    assert stack.running is not None
    try:
        return httpx.get(f"{stack.running.api_url}/livez", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def patiently(question: Callable[[], T], default: T) -> T:
    """Return the answer, or `default` while Postgres is away."""
    try:
        return question()
    except psycopg.OperationalError:
        return default


def finish(stack: Stack, execution_id: int) -> None:
    def ended() -> bool:
        return patiently(lambda: kills.status(stack, execution_id), "RUNNING") != "RUNNING"

    kills.wait(stack, ended, timeout_s=90, what="the end of the run")
    kills.finish(stack, execution_id)


def pids(stack: Stack, role: str) -> list[int]:
    return [child.pid for child in stack.children if child.role.role == role]


@pytest.mark.timeout(200)
def test_one_of_each_role_is_killed(stack: Stack):
    execution_id = half_way(stack)
    for role in ("ingest", "compute", "meta"):
        os.kill(random.choice(pids(stack, role)), signal.SIGKILL)
    finish(stack, execution_id)


@pytest.mark.timeout(200)
def test_workers_go_on_with_the_ingest_that_is_left(stack: Stack):
    execution_id = half_way(stack)
    workers = pids(stack, "worker")
    os.kill(pids(stack, "ingest")[1], signal.SIGKILL)
    kills.finish(stack, execution_id, tend=False)
    assert pids(stack, "worker") == workers
    kills.wait(
        stack, lambda: all(child.exit_status() is None for child in stack.children), timeout_s=30, what="its return"
    )


@pytest.mark.timeout(200)
@pytest.mark.parametrize("place", [0, 1], ids=["the first", "the second"])  # one of them routes the run
def test_an_ingest_that_is_frozen_for_longer_than_its_lease_lives_on(stack: Stack, place: int):
    execution_id = half_way(stack)
    frozen = pids(stack, "ingest")[place]
    os.kill(frozen, signal.SIGSTOP)
    try:
        deadline = time.monotonic() + FROZEN_S
        while time.monotonic() < deadline:
            kills.status(stack, execution_id)
            time.sleep(0.1)
    finally:
        os.kill(frozen, signal.SIGCONT)
    finish(stack, execution_id)
    assert frozen in pids(stack, "ingest")


@pytest.mark.timeout(200)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGQUIT], ids=["killed", "stopped at once"])
def test_postgres_is_killed_and_comes_back_at_its_port(stack: Stack, number: signal.Signals):
    execution_id = half_way(stack)
    before = {child.role.name: child.pid for child in stack.children}
    postgres = stack.servers["postgres"]
    os.kill(postgres.pid, number)
    finish(stack, execution_id)
    assert stack.servers["postgres"].pid != postgres.pid
    assert {child.role.name: child.pid for child in stack.children} == before, "no role ended with its database"
