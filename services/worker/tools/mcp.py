"""The mcp tool: JSON-RPC to a server of the Model Context Protocol over streamable HTTP."""

from collections.abc import Mapping
from typing import Any

import msgspec

from noetl_common.core.outcome import Outcome
from noetl_common.errors import Invalid
from services.worker.tools import Call, failed, http

PROTOCOL = "2025-03-26"
METHODS = ("tools/call", "tools/list", "health")
PAGES_MAX = 100
MESSAGE_CHARS_MAX = 500


async def run(call: Call) -> Outcome:
    """Return the result of `tools/call` {content, isError, ...}, `tools/list` {tools}, or `health` {status, server}.

    Errors: none is raised; error.kind is those of the http tool, config, protocol (an answer that is no JSON-RPC),
    rpc (an error of the protocol) or tool (a result with isError, which is its data too).
    """
    config = {**call.input, **call.config}
    try:
        session = _Session(call, config)
        method = str(config.get("method") or ("tools/call" if config.get("tool") else "tools/list"))
        if method not in METHODS:
            raise Invalid(f"method: expected one of {', '.join(METHODS)}, found {method!r}")
        if method == "tools/call" and not isinstance(config.get("tool"), str):
            raise Invalid(f"tool: expected the name of a tool, found {config.get('tool')!r}"[:300])
        arguments = config.get("arguments") or {}
        if not isinstance(arguments, dict):
            raise Invalid(f"arguments: expected a mapping, found {type(arguments).__name__}")
    except Invalid as exc:
        return failed("config", f"mcp: {exc}", code=exc.code)
    try:
        server = await session.open()
        try:
            if method == "health":
                await session.ask("ping", {})
                return Outcome(data={"status": "ok", "server": server})
            if method == "tools/list":
                return Outcome(data={"tools": await _tools(session)})
            return _called(config["tool"], await session.ask(method, {"name": config["tool"], "arguments": arguments}))
        finally:
            await session.close()
    except _Refused as exc:
        return exc.outcome


class _Refused(Exception):
    """One request came to nothing; the outcome says how."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        super().__init__()


class _Session:
    """One conversation: opened, asked, closed. Its requests are the http tool's, with its limits and its guard."""

    def __init__(self, call: Call, config: Mapping[str, Any]) -> None:
        server = config.get("endpoint") or config.get("server") or config.get("url")
        if isinstance(server, Mapping):
            server = server.get("url") or server.get("endpoint")
        if not isinstance(server, str) or not server:
            raise Invalid("endpoint: expected the URL of a server, found none")
        headers = config.get("headers") or {}
        if not isinstance(headers, Mapping):
            raise Invalid(f"headers: expected a mapping, found {type(headers).__name__}")
        self._call = call
        self._fields = {
            name: config[name] for name in ("auth", "credential", "timeout", "verify_ssl") if name in config
        }
        self._url = server
        self._headers: dict[str, Any] = {
            **headers,
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
        }
        self._session = ""
        self._number = 0

    async def open(self) -> Any:
        """Greet the server and return who it is."""
        greeting = {
            "protocolVersion": PROTOCOL,
            "capabilities": {},
            "clientInfo": {"name": "noetl", "version": "1"},
        }
        result = await self.ask("initialize", greeting)
        if isinstance(result, dict) and isinstance(result.get("protocolVersion"), str):
            self._headers["MCP-Protocol-Version"] = result["protocolVersion"]
        await self._send("POST", {"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result.get("serverInfo") if isinstance(result, dict) else None

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Return the result of one request. Errors: _Refused."""
        self._number += 1
        number = self._number
        asked = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        answer = await self._send("POST", asked)
        message = _answer_to(number, str(answer.get("data") or ""), str(answer["headers"].get("content-type", "")))
        if message is None:
            text = f"mcp: {method}: expected a JSON-RPC answer to request {number}, found none"
            raise _Refused(failed("protocol", text, code="MCP_PROTOCOL"))
        error = message.get("error")
        if error is not None:
            said = error.get("message") if isinstance(error, dict) else error
            code = error.get("code") if isinstance(error, dict) else None
            text = f"mcp: {method}: {str(said)[:MESSAGE_CHARS_MAX]}"
            raise _Refused(failed("rpc", text, code="MCP_RPC", rpc_code=code))
        return message.get("result")

    async def close(self) -> None:
        """Say goodbye to a server that keeps sessions; one that will not hear it forgets us by itself."""
        if self._session:
            await http.run(self._request("DELETE", None))

    async def _send(self, method: str, message: dict[str, Any]) -> dict[str, Any]:
        outcome = await http.run(self._request(method, message))
        if not outcome.ok:
            raise _Refused(msgspec.structs.replace(outcome, data=None))
        self._session = outcome.data["headers"].get("mcp-session-id") or self._session
        answered: dict[str, Any] = outcome.data
        return answered

    def _request(self, method: str, message: dict[str, Any] | None) -> Call:
        headers = {**self._headers, **({"Mcp-Session-Id": self._session} if self._session else {})}
        config = {**self._fields, "url": self._url, "method": method, "headers": headers, "response_type": "text"}
        if message is not None:
            config["json"] = message
        return msgspec.structs.replace(self._call, kind="http", config=config, input={})


async def _tools(session: _Session) -> list[Any]:
    tools: list[Any] = []
    cursor: Any = None
    for _ in range(PAGES_MAX):
        page = await session.ask("tools/list", {"cursor": cursor} if cursor else {})
        page = page if isinstance(page, dict) else {}
        tools += page.get("tools") or []
        cursor = page.get("nextCursor")
        if not cursor:
            break
    return tools


def _called(tool: str, result: Any) -> Outcome:
    if not isinstance(result, dict) or not result.get("isError"):
        return Outcome(data=result)
    parts = result.get("content")
    texts = [str(part.get("text", "")) for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    message = f"mcp: tool {tool!r} says: {' '.join(' '.join(texts).split())[:MESSAGE_CHARS_MAX] or 'it failed'}"
    outcome = failed("tool", message, code="MCP_TOOL_ERROR")
    outcome.data = result
    return outcome


def _answer_to(number: int, body: str, content_type: str) -> dict[str, Any] | None:
    """Return the message that answers request `number`, in a body that is JSON or a stream of events."""
    texts = _events(body) if "event-stream" in content_type else [body]
    for text in texts:
        try:
            found = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            continue
        for message in found if isinstance(found, list) else [found]:
            if isinstance(message, dict) and message.get("id") == number and {"result", "error"} & set(message):
                return message
    return None


def _events(body: str) -> list[str]:
    blocks = body.replace("\r\n", "\n").split("\n\n")
    lines = ([line[5:].lstrip() for line in block.split("\n") if line.startswith("data:")] for block in blocks)
    return ["\n".join(found) for found in lines if found]
