"""What the HTTP API of playbooks under test answers from numbers alone: pages by number, offset and cursor, echoes."""

import base64
import binascii
import json
from typing import Any, NamedTuple

ITEMS = 35
POSTS = 100
CHAIN_ITEMS = 382

Answer = tuple[int, Any, dict[str, str]]


class Request(NamedTuple):
    """One request as the routes read it."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes
    headers: dict[str, str]

    def number(self, name: str, default: int) -> int:
        """Return a whole number of the query. Errors: BadQuery where it is given and is none."""
        try:
            return int(self.query.get(name, default))
        except ValueError as error:
            raise BadQuery(name, self.query[name]) from error

    def seconds(self, name: str) -> float:
        """Return a number of seconds of the query, 0 without it. Errors: BadQuery."""
        try:
            return float(self.query.get(name, 0))
        except ValueError as error:
            raise BadQuery(name, self.query[name]) from error


class BadQuery(Exception):
    """A parameter that is not what the route expects; answered with 422."""

    def __init__(self, name: str, found: str) -> None:
        super().__init__(name)
        self.answer: Answer = (422, {"detail": [{"loc": ["query", name], "type": "int_parsing", "input": found}]}, {})


def ok(value: Any) -> Answer:
    """Return an answer of status 200."""
    return 200, value, {}


def assessments(request: Request) -> Answer:
    """Return a page by its number."""
    page, size = request.number("page", 1), request.number("pageSize", 10)
    found = [{"id": n, "name": f"Assessment {n}", "score": n * 2} for n in _slice((page - 1) * size, size)]
    more = page * size < ITEMS
    return ok({"data": found, "paging": {"hasMore": more, "page": page, "pageSize": size, "total": ITEMS}})


def users(request: Request) -> Answer:
    """Return a page by its offset."""
    offset, limit = request.number("offset", 0), request.number("limit", 10)
    found = [{"id": n, "name": f"User {n}"} for n in _slice(offset, limit)]
    return ok({"users": found, "has_more": offset + limit < ITEMS, "offset": offset, "limit": limit, "total": ITEMS})


def events(request: Request) -> Answer:
    """Return a page by a cursor that only the server reads."""
    limit = request.number("limit", 10)
    try:
        page = int(base64.b64decode(request.query.get("cursor") or base64.b64encode(b"1")))
    except (ValueError, binascii.Error):
        return 400, {"detail": "no such cursor"}, {}
    found = [{"id": n, "type": "visit"} for n in _slice((page - 1) * limit, limit)]
    following = base64.b64encode(str(page + 1).encode()).decode() if page * limit < ITEMS else None
    return ok({"events": found, "next_cursor": following, "limit": limit})


def chain_items(request: Request) -> Answer:
    """Return a page of references, each to be followed by one more request."""
    page, size = request.number("page", 1), request.number("pageSize", 24)
    ids = range((page - 1) * size + 1, min(page * size, CHAIN_ITEMS) + 1)
    found = [{"id": n, "ref": f"/api/v1/reference-chain/detail/{n}"} for n in ids]
    more = page * size < CHAIN_ITEMS
    return ok({"items": found, "paging": {"hasMore": more, "page": page, "total": CHAIN_ITEMS}, "hasMore": more})


def posts(request: Request) -> Answer:
    """Return a hundred posts, or the one that the path names."""
    found = [
        {"userId": (n - 1) // 10 + 1, "id": n, "title": f"It's post {n}", "body": f"text {n}"}
        for n in range(1, POSTS + 1)
    ]
    return _one_of(found, request) if request.method == "GET" else (201, {**_object(request), "id": POSTS + 1}, {})


def people(request: Request) -> Answer:
    """Return ten people, or the one that the path names."""
    found = [{"id": n, "name": f"Person {n}", "email": f"p{n}@example.com"} for n in range(1, 11)]
    return _one_of(found, request)


def forecast(request: Request) -> Answer:
    """Return the weather of a place; warmer towards the equator."""
    warmth = round(40 - abs(request.seconds("latitude")) * 0.5, 1)
    hours = [f"2026-01-01T{hour:02d}:00" for hour in range(24)]
    return ok(
        {
            "latitude": request.seconds("latitude"),
            "longitude": request.seconds("longitude"),
            "current": {"time": hours[0], "temperature_2m": warmth, "wind_speed_10m": 3.5},
            "current_weather": {"temperature": warmth, "windspeed": 3.5, "time": hours[0]},
            "hourly": {"time": hours, "temperature_2m": [warmth] * 24},
        }
    )


def echo(request: Request) -> Answer:
    """Return what was sent, as an echo server does."""
    text = request.body.decode(errors="replace")
    return ok(
        {
            "args": request.query,
            "method": request.method,
            "url": request.path,
            "headers": request.headers,
            "body": text,
            "data": text,
            "json": _parsed(text),
        }
    )


def _one_of(found: list[dict[str, Any]], request: Request) -> Answer:
    parts = request.path.strip("/").split("/")
    if len(parts) == 1:
        return ok(found)
    wanted = [one for one in found if str(one["id"]) == parts[1]]
    return ok(wanted[0]) if wanted else (404, {}, {})


def _slice(offset: int, count: int) -> range:
    return range(offset + 1, min(offset + count, ITEMS) + 1)


def _object(request: Request) -> dict[str, Any]:
    value = _parsed(request.body.decode())
    return value if isinstance(value, dict) else {}


def _parsed(body: str) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None
