"""Connections to NATS servers that playbooks name, one for each login and event loop."""

import asyncio
from weakref import WeakKeyDictionary

import msgspec
import nats.errors
from nats.aio.client import Client

from noetl_common.errors import Unauthorized, Unavailable
from noetl_common.log import get_logger

CONNECT_TIMEOUT_S = 5
RECONNECT_PAUSE_S = 0.1
CONNECTIONS_MAX = 16

log = get_logger(__name__)


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """A server and who one is there."""

    url: str
    user: str = ""
    password: str = ""
    token: str = ""


class Connections:
    """The open connections of one event loop, the least recently opened closed first."""

    def __init__(self) -> None:
        self._clients: dict[Login, Client] = {}
        self._lock = asyncio.Lock()

    async def client(self, login: Login) -> Client:
        """Return a connection of this login. Errors: Unavailable, without a word of the login."""
        async with self._lock:
            held = self._clients.get(login)
            if held is not None and held.is_connected:
                return held
            await self._forget(login)
            if len(self._clients) >= CONNECTIONS_MAX:
                await self._forget(next(iter(self._clients)))
            self._clients[login] = client = await _connected(login)
            return client

    async def close(self) -> None:
        """Close them all."""
        for login in list(self._clients):
            await self._forget(login)

    async def _forget(self, login: Login) -> None:
        client = self._clients.pop(login, None)
        if client is not None:
            await client.close()


def connections() -> Connections:
    """Return the connections of the running event loop."""
    return _of_loop.setdefault(asyncio.get_running_loop(), Connections())


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Connections] = WeakKeyDictionary()


async def _connected(login: Login) -> Client:
    client = Client()
    given = {"user": login.user, "password": login.password, "token": login.token}
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await client.connect(
                login.url,
                name="noetl worker",
                connect_timeout=CONNECT_TIMEOUT_S,
                allow_reconnect=False,  # the next call connects anew, and the task's rules say whether there is one
                max_reconnect_attempts=1,
                reconnect_time_wait=RECONNECT_PAUSE_S,  # type: ignore[arg-type]  # any number of seconds will do
                error_cb=_said,
                **{name: value for name, value in given.items() if value},  # type: ignore[arg-type]
            )
    except nats.errors.AuthorizationError:
        await client.close()
        raise Unauthorized("the server refuses the login") from None
    except (nats.errors.Error, OSError, TimeoutError, ValueError) as exc:
        await client.close()
        raise Unavailable(f"the server cannot be reached: {type(exc).__name__}") from exc
    return client


async def _said(error: Exception) -> None:
    log.debug("nats_tool.error", error=type(error).__name__)
