"""Settings: one frozen Struct a role, each field read from one environment variable that names and explains itself."""

import difflib
import math
import os
import types
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from noetl_common.errors import ConfigError
from noetl_common.log import get_logger

T = TypeVar("T", bound=msgspec.Struct)
log = get_logger(__name__)

PREFIX = "NOETL_"
STRICT = "NOETL_STRICT_CONFIG"
UNITS = {"s": "seconds", "ms": "milliseconds", "bytes": "bytes", "h": "hours", "hours": "hours", "days": "days"}


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What one field's annotation says about its environment variable."""

    name: str
    doc: str
    unit: str = ""
    secret: bool = False


def env(name: str, *, doc: str, unit: str = "", secret: bool = False) -> Setting:
    """Return the mark that ties a field to an environment variable; a secret one also has a `<name>_FILE` form."""
    return Setting(name=name, doc=doc, unit=unit, secret=secret)


DatabaseUrl = Annotated[str, env("DATABASE_URL", doc="Postgres, as postgresql://user:password@host/name.", secret=True)]

DeathDetector = Annotated[
    bool,
    env(
        "NOETL_DEATH_DETECTOR",
        doc="Hold a session lock, which ends with the process; false behind a pooler of transactions (PgBouncer).",
    ),
]


class _Field(NamedTuple):
    """One field that has a variable; `kind` is its bare type, `limits` what else its annotation demands."""

    name: str
    setting: Setting
    kind: Any
    limits: msgspec.Meta | None
    required: bool
    default: Any


class Common(msgspec.Struct, frozen=True, kw_only=True):
    """What every role can be told. A role without Postgres declares `database_url: DatabaseUrl = ""` again."""

    database_url: DatabaseUrl
    nats_url: Annotated[str, env("NATS_URL", doc="NATS, as nats://host:4222; empty: run without it.", secret=True)] = ""
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], env("LOG_LEVEL", doc="The least level that is logged.")
    ] = "info"
    log_format: Annotated[
        Literal["json", "text"], env("LOG_FORMAT", doc="JSON lines for machines, or text for people.")
    ] = "json"
    host: Annotated[str, env("NOETL_HOST", doc="The address the process listens on.")] = "127.0.0.1"
    port: Annotated[int, env("NOETL_PORT", doc="The port the process listens on; 0: any free one.")] = 0
    instance: Annotated[str, env("NOETL_INSTANCE", doc="This process's name; empty: a new random one.")] = ""
    strict_config: Annotated[bool, env(STRICT, doc="Refuse to start on an unknown NOETL_ variable.")] = False


def load(kind: type[T], environ: Mapping[str, str] | None = None) -> T:
    """Return a `kind` read from the environment; an empty variable counts as not set.

    Errors: ConfigError names the variable, what was expected and what was found.
    """
    given = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    for field in _fields(kind):
        setting = field.setting
        text = _text(setting, given)
        if text:
            values[field.name] = _parsed(text, field)
        elif field.required:
            ways = f"{setting.name} or {setting.name}_FILE" if setting.secret else setting.name
            raise ConfigError(f"{ways}: expected {_expected(field, field.kind)}, found nothing ({setting.doc})")
    return kind(**values)


def check_unknown(known: frozenset[str], environ: Mapping[str, str] | None = None) -> list[str]:
    """Log each NOETL_ variable that no role reads, with its near matches; return their names.

    Errors: ConfigError when there is one and NOETL_STRICT_CONFIG is true.
    """
    given = os.environ if environ is None else environ
    unknown = sorted(name for name in given if name.startswith(PREFIX) and name not in known)
    found = []
    for name in unknown:
        near = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.75)
        log.warning("config.unknown_variable", name=name, near=near)
        found.append(name + (f" (near: {', '.join(near)})" if near else ""))
    if unknown and given.get(STRICT, "").strip().lower() in ("true", "1"):
        raise ConfigError(f"unknown variables, refused by {STRICT}: {'; '.join(found)}")
    return unknown


def known_names(*kinds: type[msgspec.Struct]) -> frozenset[str]:
    """Return every variable that these configurations read, `_FILE` forms included."""
    names: set[str] = set()
    for kind in kinds:
        for setting in (field.setting for field in _fields(kind)):
            names |= {setting.name, f"{setting.name}_FILE"} if setting.secret else {setting.name}
    return frozenset(names)


def every_known_name() -> frozenset[str]:
    """Return every variable that some role or the command reads; `make env-example` keeps the list."""
    listed = (resources.files("noetl_common") / "known_settings.txt").read_text(encoding="utf-8")
    return frozenset(listed.split())


def redacted(config: msgspec.Struct) -> dict[str, Any]:
    """Return the settings by variable name, secret ones as *** (or empty when not set)."""
    shown: dict[str, Any] = {}
    for field in _fields(type(config)):
        value = getattr(config, field.name)
        shown[field.setting.name] = ("***" if value else "") if field.setting.secret else value
    return shown


def render_env_example(*kinds: type[msgspec.Struct]) -> str:
    """Return the text of `.env.example`: each variable once, with its meaning, unit and default; secrets empty."""
    lines = ["# Every setting, with its default. Empty means not set. Secrets also have a <NAME>_FILE form."]
    seen: set[str] = set()
    for kind in kinds:
        for field in _fields(kind):
            setting = field.setting
            if setting.name in seen:
                continue
            seen.add(setting.name)
            unit = f" Unit: {UNITS.get(setting.unit, setting.unit)}." if setting.unit else ""
            need = " Required." if field.required else ""
            choices = (
                f" One of: {', '.join(map(str, get_args(field.kind)))}." if get_origin(field.kind) is Literal else ""
            )
            default = "" if setting.secret or field.required else _shown(field.default)
            lines += ["", f"# {setting.doc}{unit}{choices}{need}", f"{setting.name}={default}"]
    return "\n".join(lines) + "\n"


def _fields(kind: type[msgspec.Struct]) -> Iterator[_Field]:
    hints = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        marks = getattr(hints[field.name], "__metadata__", ())
        setting = next((mark for mark in marks if isinstance(mark, Setting)), None)
        limits = next((mark for mark in marks if isinstance(mark, msgspec.Meta)), None)
        if setting is not None:
            bare = get_args(hints[field.name])[0]
            yield _Field(field.name, setting, bare, limits, required=field.required, default=field.default)


def _text(setting: Setting, given: Mapping[str, str]) -> str:
    text = given.get(setting.name, "").strip()
    path = given.get(f"{setting.name}_FILE", "").strip() if setting.secret else ""
    if text and path:
        raise ConfigError(f"{setting.name}: expected either it or {setting.name}_FILE, found both")
    if not path:
        return text
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{setting.name}_FILE: expected a readable text file, found {path!r}: {exc}") from exc


def _parsed(text: str, field: _Field) -> Any:
    """Return `text` as the field's type; a tuple is written with commas."""
    value: Any = text
    if get_origin(field.kind) is tuple:
        value = [part.strip() for part in text.split(",") if part.strip()]
    wanted = field.kind if field.limits is None else Annotated[field.kind, field.limits]
    try:
        parsed = msgspec.convert(value, wanted, strict=False)
    except msgspec.ValidationError:
        parsed = None
    if parsed is None or (isinstance(parsed, float) and not math.isfinite(parsed)):
        found = "something else" if field.setting.secret else repr(text)
        raise ConfigError(f"{field.setting.name}: expected {_expected(field, field.kind)}, found {found}")
    return parsed


def _expected(field: _Field, kind: Any) -> str:
    """Return in words what may stand in the variable."""
    unit = field.setting.unit
    of = f" of {UNITS.get(unit, unit)}" if unit else ""
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return "values separated by commas"
    if isinstance(kind, types.UnionType):
        return " or ".join(_expected(field, part) for part in get_args(kind) if part is not type(None))
    names = {bool: "true or false", int: f"a whole number{of}", float: f"a number{of}", str: "a text"}
    return names.get(kind, str(kind)) + _range(field.limits)


def _range(limits: msgspec.Meta | None) -> str:
    if limits is None:
        return ""
    words = {"ge": "from", "gt": "over", "le": "to", "lt": "under"}
    bounds = [f" {word} {getattr(limits, name)}" for name, word in words.items() if getattr(limits, name) is not None]
    return "".join(bounds) + (f" matching {limits.pattern}" if limits.pattern is not None else "")


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return "" if default is None or default is msgspec.NODEFAULT else str(default)
