"""Logs: an event name and bound values, a JSON line each, over standard logging so that libraries' lines match."""

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal, TextIO

import msgspec

SECRET_KEYS = ("password", "passwd", "token", "secret", "authorization", "api_key", "apikey", "private_key")
# These end in a secret word and are not secret: a fence and a count.
PUBLIC_KEYS = frozenset({"claim_token", "tokens"})
HIDDEN = "***"
VALUE_CHARACTERS_MAX = 8192
SECRET_CHARACTERS_MIN = 4
DEPTH_MAX = 8
SECRETS_KEPT = 4096  # the least recently registered goes: tokens run out, and every line looks for all of them

Level = Literal["debug", "info", "warning", "error"]

_bound: ContextVar[Mapping[str, Any]] = ContextVar("noetl_log_bound", default=MappingProxyType({}))
_process: dict[str, str] = {"service": "noetl", "instance": ""}
_secrets: dict[str, None] = {}  # the one registered last stands last
_encoder = msgspec.json.Encoder(enc_hook=str)


class Logger:
    """Logs events under one name; values given to `bind` ride on every line."""

    def __init__(self, logger: logging.Logger, values: Mapping[str, Any] | None = None) -> None:
        self._logger = logger
        self._values = dict(values or {})

    def bind(self, **values: Any) -> "Logger":
        """Return a logger that adds these values to each of its lines."""
        return Logger(self._logger, {**self._values, **values})

    def debug(self, event: str, **values: Any) -> None:
        """Log what only a developer wants."""
        self._log(logging.DEBUG, event, values)

    def info(self, event: str, **values: Any) -> None:
        """Log what an operator wants to know."""
        self._log(logging.INFO, event, values)

    def warning(self, event: str, **values: Any) -> None:
        """Log what was expected to go wrong and was survived."""
        self._log(logging.WARNING, event, values)

    def error(self, event: str, **values: Any) -> None:
        """Log what needs someone."""
        self._log(logging.ERROR, event, values)

    def exception(self, event: str, **values: Any) -> None:
        """Log an error together with the traceback of the exception being handled."""
        self._log(logging.ERROR, event, values, traceback=True)

    def _log(self, level: int, event: str, values: dict[str, Any], *, traceback: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            bound = {**self._values, **values}
            self._logger.log(level, "%s", event, extra={"noetl_values": bound}, exc_info=traceback)


def get_logger(name: str) -> Logger:
    """Return the logger of a module: get_logger(__name__)."""
    return Logger(logging.getLogger(name))


def configure(
    *,
    level: Level = "info",
    fmt: Literal["json", "text"] = "json",
    role: str,
    instance: str = "",
    stream: TextIO | None = None,
) -> None:
    """Send every log line of the process to `stream` (standard output) in one shape. Calling again replaces it."""
    _process.update(service=role, instance=instance)
    unconfigure()
    root = logging.getLogger()
    handler = _Handler(stream or sys.stdout)
    handler.setFormatter(JsonFormatter() if fmt == "json" else TextFormatter())
    root.addHandler(handler)
    root.setLevel(level.upper())
    # Libraries talk about each request and each reconnect; we say what matters ourselves.
    for noisy in ("httpx", "httpcore", "nats", "asyncio", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def unconfigure() -> None:
    """Undo `configure`: nothing is written to its stream any more."""
    root = logging.getLogger()
    for old in [h for h in root.handlers if isinstance(h, _Handler)]:
        root.removeHandler(old)
        old.close()


@contextmanager
def bound(**values: Any) -> Iterator[None]:
    """Add values to every line logged inside, by any logger, in this task and in tasks it starts."""
    token = _bound.set({**_bound.get(), **values})
    try:
        yield
    finally:
        _bound.reset(token)


def redact(value: str) -> None:
    """Never show this value in a log line again, wherever it stands. Values under 4 characters are not registered."""
    if len(value) >= SECRET_CHARACTERS_MIN:
        _secrets.pop(value, None)
        _secrets[value] = None
        if len(_secrets) > SECRETS_KEPT:
            del _secrets[next(iter(_secrets))]


def scrubbed(value: Any, *, depth: int = 0) -> Any:
    """Return `value` in JSON types with secret keys and registered values hidden, and long texts cut."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)  # JSON readers stop there, and so does our encoder
    if depth > DEPTH_MAX:
        return "..."
    if isinstance(value, Mapping):
        return {str(k): HIDDEN if _is_secret(str(k)) else scrubbed(v, depth=depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [scrubbed(v, depth=depth + 1) for v in value]
    return _clean(value if isinstance(value, str) else _text_of(value))


def record_values(record: logging.LogRecord) -> dict[str, Any]:
    """Return one log record as the mapping that is written, in the order of its keys."""
    own = getattr(record, "noetl_values", None)
    values: dict[str, Any] = {
        "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "event": _clean(_message_of(record)),
        "logger": record.name,
        **_process,
    }
    values.update(scrubbed({**_bound.get(), **(own or {})}))
    if record.exc_info and record.exc_info[1] is not None:
        values["error"] = scrubbed(f"{type(record.exc_info[1]).__name__}: {_text_of(record.exc_info[1])}")
        values["traceback"] = _clean(logging.Formatter().formatException(record.exc_info))
    return values


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return _encoder.encode(record_values(record)).decode()


class TextFormatter(logging.Formatter):
    """One readable line: time, level, event, values."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and the traceback below it."""
        values = record_values(record)
        head = f"{values.pop('ts')} {values.pop('level'):<7} {values.pop('service')} {values.pop('event')}"
        traceback = values.pop("traceback", "")
        rest = " ".join(f"{k}={v}" for k, v in values.items() if k != "instance")
        return f"{head} {rest}" + (f"\n{traceback}" if traceback else "")


class _Handler(logging.StreamHandler[TextIO]):
    """Ours, so that `configure` finds it again; a line that cannot be written is dropped, the process goes on."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Drop the line: a closed pipe must not fail the work that wanted to speak of itself."""


def _is_secret(key: str) -> bool:
    lowered = key.lower().replace("-", "_")
    return lowered not in PUBLIC_KEYS and any(word in lowered for word in SECRET_KEYS)


def _clean(text: str) -> str:
    """Return a text that can be written: no registered secret, no lone surrogate, not too long."""
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode()
    for secret in tuple(_secrets):  # a copy: another thread may be registering one
        if secret in text:
            text = text.replace(secret, HIDDEN)
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[:VALUE_CHARACTERS_MAX] + "..."


def _text_of(value: Any) -> str:
    try:
        return str(value)
    except Exception as exc:  # a value's own __str__ may do anything; logging must not fail for it
        return f"<{type(value).__name__} without a text: {type(exc).__name__}>"


def _message_of(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as exc:  # a library's wrong format string is its bug, not a reason to stop
        return f"{record.msg!s} ({type(exc).__name__} while formatting)"
