"""Where the http tool may connect to: each address a host resolves to is checked, and a checked one is used.

The check stands where the connection is made, so it covers redirects, odd spellings of addresses and names that
resolve differently the second time. Proxies of the environment are not used: behind one nothing could be checked.
"""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Iterable
from typing import Annotated

import httpcore
import httpx
import msgspec

from noetl_common.config import env
from noetl_common.errors import AddressRefused

CONNECTIONS_MAX = 256
KEPT_ALIVE_MAX = 64
KEPT_ALIVE_S = 5.0
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Link-local addresses, where clouds keep their metadata and credentials, and metadata services elsewhere.
REFUSED = tuple(
    ipaddress.ip_network(network)
    for network in (
        "169.254.0.0/16",
        "fe80::/10",
        "fd00:ec2::/32",  # AWS
        "fd20:ce::254/128",  # Google
        "100.100.100.200/32",  # Alibaba
        "192.0.0.192/32",  # Oracle
        "168.63.129.16/32",  # Azure
    )
)
NAT64 = ipaddress.ip_network("64:ff9b::/96")
HttpAllowHosts = Annotated[
    str,
    env(
        "NOETL_HTTP_ALLOW_HOSTS",
        doc="Hosts and networks, separated by commas, that the http tool may reach though they are refused otherwise.",
    ),
]


class Egress(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator opens to the http tool beyond the default."""

    http_allow_hosts: HttpAllowHosts = ""

    @property
    def allowed(self) -> frozenset[str]:
        """The hosts and networks of the list."""
        return frozenset(part.strip().lower() for part in self.http_allow_hosts.split(",") if part.strip())


def refusal(address: Address, allowed: Iterable[str] = ()) -> str:
    """Return why a tool may not connect to `address`, empty when it may."""
    real = _embedded(address)
    if any(real in network for network in _networks(allowed)):
        return ""
    network = next((network for network in REFUSED if real in network), None)
    return f"{address} is in {network}, which is closed to tools" if network else ""


class GuardedTransport(httpx.AsyncBaseTransport):
    """httpx over a pool whose connections go to checked addresses only; HTTP/1.1."""

    def __init__(self, *, verify: bool, allowed: frozenset[str] = frozenset()) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=httpx.create_ssl_context(verify=verify, trust_env=False),
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=KEPT_ALIVE_MAX,
            keepalive_expiry=KEPT_ALIVE_S,
            network_backend=_GuardedBackend(allowed),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request.

        Errors: AddressRefused; httpcore's errors pass through.
        """
        assert isinstance(request.stream, httpx.AsyncByteStream)
        url = httpcore.URL(
            scheme=request.url.raw_scheme, host=request.url.raw_host, port=request.url.port, target=request.url.raw_path
        )
        response = await self._pool.handle_async_request(
            httpcore.Request(
                method=request.method,
                url=url,
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        assert not isinstance(response.stream, bytes)
        return httpx.Response(
            status_code=response.status,
            headers=response.headers,
            stream=_Body(response),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._response.aiter_stream():
            yield part

    async def aclose(self) -> None:
        await self._response.aclose()


class _GuardedBackend(httpcore.AsyncNetworkBackend):
    """Resolve, check every address, connect to the checked ones in turn."""

    def __init__(self, allowed: frozenset[str]) -> None:
        self._allowed = allowed
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        addresses = await _resolved(host, port, timeout)
        if host.lower().rstrip(".") not in self._allowed:
            for address in addresses:
                why = refusal(address, self._allowed)
                if why:
                    raise AddressRefused(f"{host}: {why}; NOETL_HTTP_ALLOW_HOSTS opens it")
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in addresses:
            try:
                return await self._inner.connect_tcp(
                    str(address), port, timeout=timeout, local_address=local_address, socket_options=socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as exc:
                failure = exc
        raise failure

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def _resolved(host: str, port: int, timeout_s: float | None) -> list[Address]:
    try:
        return [ipaddress.ip_address(host)]
    except ValueError:
        pass  # a name, or an address in a spelling that only the resolver knows
    try:
        async with asyncio.timeout(timeout_s):
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except TimeoutError as exc:
        raise httpcore.ConnectTimeout(f"{host} was not resolved within {timeout_s} s") from exc
    except (OSError, UnicodeError) as exc:
        raise httpcore.ConnectError(f"{host} cannot be resolved: {exc}") from exc
    return list(dict.fromkeys(ipaddress.ip_address(str(place[4][0]).partition("%")[0]) for place in found))


def _embedded(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one stands for, else itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address in NAT64:
        inner = ipaddress.IPv4Address(address.packed[-4:])
    return inner or address


def _networks(allowed: Iterable[str]) -> Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    for part in allowed:
        try:
            yield ipaddress.ip_network(part, strict=False)
        except ValueError:
            continue  # a host name, compared as such
