"""Which server a verb talks to: --server, NOETL_SERVER_URL, the stack of the state directory, or one of its own."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from noetl_cli.api import Api
from noetl_cli.output import say
from noetl_cli.state_dir import StateDir
from noetl_common.errors import DependencyMissing, Invalid

STARTING_TIMEOUT_S = 90.0

Tend = Callable[[], list[str]]


@contextmanager
def connected(server: str | None) -> Iterator[Api]:
    """Lend the API of the server that is there. Errors: DependencyMissing when there is none."""
    url = _named_url(server) or _any_url(StateDir.chosen())
    if not url:
        raise DependencyMissing("no server: start one with `noetl up`, or name one with --server or NOETL_SERVER_URL")
    with Api(url) as api:
        yield api


@contextmanager
def connected_or_started(server: str | None) -> Iterator[tuple[Api, Tend]]:
    """Lend the API of the server that is there, else of a stack that runs as long as the caller.

    The second value must be called now and then: it starts a role again that has died, and says so.
    """
    state = StateDir.chosen()
    url = _named_url(server) or _shared_url(state)
    if url:
        with Api(url) as api:
            yield api, list
        return
    # Imported here: a verb that talks to a running server needs none of it.
    from noetl_cli.embedded.stack import Plan, Stack

    stack = Stack(state, Plan(owner="run"))
    say(f"starting Postgres, NATS and all roles in {state.path}")
    try:
        running = stack.start()
        with Api(running.api_url) as api:
            yield api, stack.tend
    finally:
        stack.stop()


def _named_url(server: str | None) -> str:
    """Return the URL of --server, else of NOETL_SERVER_URL; empty without either. Errors: Invalid when it is none."""
    url = server or os.environ.get("NOETL_SERVER_URL", "")
    parts = urlsplit(url)
    if url and (parts.scheme not in ("http", "https") or not parts.netloc):
        raise Invalid(f"{'--server' if server else 'NOETL_SERVER_URL'}: expected http://host:port, found {url!r}")
    return url


def _any_url(state: StateDir) -> str:
    """Return the API of whatever stack is ready in the state directory; empty when there is none."""
    running = state.running()
    return running.api_url if running else ""


def _shared_url(state: StateDir) -> str:
    """Return the API of the stack that `up` keeps in the state directory; empty when nobody runs one.

    One that is just starting is waited for. One that another `run` started ends with that run: waited for too.
    """
    deadline = time.monotonic() + STARTING_TIMEOUT_S
    told = False
    while True:
        running = state.running()
        if running is not None and running.owner == "up":
            return running.api_url
        holder = state.holder_pid()
        if holder is None:
            return ""
        if time.monotonic() > deadline and running is None:
            raise DependencyMissing(f"process {holder} holds {state.path} but no stack became ready there")
        if not told:
            why = "ends its run (a stack of `noetl up` would be shared)" if running else "has started its stack"
            say(f"waiting until process {holder} {why}")
            told = True
        time.sleep(0.1)
