"""What worker and ingest say to each other over HTTP, and the codec with its limits.

Ids are integers here; the user API shows them as strings.
"""

import json
import math
import re
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from noetl_common.core.commands import CommandContext, Item
from noetl_common.core.events import Envelope
from noetl_common.core.values import PAYLOAD_INLINE_BYTES_MAX as PAYLOAD_INLINE_BYTES_MAX
from noetl_common.core.values import Ref, Shape, Tier
from noetl_common.errors import Invalid, TooLarge

BODY_BYTES_MAX = 4 * 1024 * 1024
BATCH_EVENTS_MAX = 256
DETAILS_BYTES_MAX = 1024
STREAM_CHUNKS_MAX = 10_000  # of one task of one command
TASK_CHARACTERS_MAX = 200  # of the label of a task that streams
NESTING_MAX = 64

Outcome = Literal["accepted", "duplicate", "fenced", "unknown"]
T = TypeVar("T")


if TYPE_CHECKING:
    Inline = msgspec.Raw | None
else:
    # The decoder takes `Raw` in a union for nothing but null, and checks no default: absent is None all the same.
    Inline = msgspec.Raw


class Claim(msgspec.Struct, kw_only=True):
    """POST /api/commands/claim. `wait_s`: how long the server may hold the request when nothing is waiting."""

    worker_id: str
    pool: str = "default"
    max: int = 1
    wait_s: float = 0.0


class ClaimedCommand(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One command on lease to one worker; `claim_token` fences its report."""

    execution_id: int
    command_id: int
    event_id: int  # of command.issued
    step: str
    attempt: int
    claim_token: int
    context_id: int
    loop_epoch: int = 0
    iter_index: int = -1
    item: Item | None = None
    details: dict[str, Any] | None = None  # what an earlier attempt noted down (Details)


class ResultRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One row of noetl.result_ref as it travels. `inline` is the payload itself when it is at most 8 KiB."""

    execution_id: int
    ref_id: int
    step: str
    bytes: int
    sha256: str
    store_tier: Tier = "db"
    physical_uri: str = ""
    task_label: str = ""
    shape: Shape = "plain"
    loop_epoch: int = 0
    iter_index: int = -1
    parent_ref_id: int | None = None
    content_type: str = "application/json"
    compression: str = "none"
    rows: int | None = None
    preview: Any = None
    extracted: dict[str, Any] | None = None
    inline: Inline = None


def ref_of(row: ResultRow) -> Ref:
    """Return the reference to a result's row."""
    return Ref(
        execution_id=row.execution_id,
        ref_id=row.ref_id,
        tier=row.store_tier,
        bytes=row.bytes,
        sha256=row.sha256,
        shape=row.shape,
        label=row.step,
        content_type=row.content_type,
    )


class Claimed(msgspec.Struct, kw_only=True):
    """The answer to Claim. `contexts` and `results` hold each context and each small result they name, once."""

    commands: list[ClaimedCommand]
    contexts: dict[int, CommandContext]
    results: list[ResultRow]
    lease_s: float


class Report(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One terminal report of one command, with the index rows (and small payloads) of its results.

    `call.partial` is the one report that is not terminal: chunk `chunk` (0, 1, ...) of what task `task` streams.
    """

    execution_id: int
    event_type: Literal["command.completed", "command.failed", "command.cancelled", "call.partial"]
    command_id: int
    claim_token: int
    step: str
    attempt: int
    status: str
    result: Envelope
    loop_epoch: int = 0
    iter_index: int = -1
    event_time: str = ""
    meta: dict[str, Any] = {}
    results: list[ResultRow] = []
    task: str = ""  # call.partial only
    chunk: int = -1  # call.partial only


class Details(msgspec.Struct, kw_only=True, omit_defaults=True):
    """POST /api/commands/{command_id}/details: what the next attempt must know if this one ends without a report.

    Shapes: `details` at most DETAILS_BYTES_MAX as JSON; it replaces what was noted before. `results` holds the rows
    of the payloads it names. Fenced by the claim token like a report.
    """

    worker_id: str
    execution_id: int
    claim_token: int
    details: dict[str, Any]
    results: list[ResultRow] = []


class ReportBatch(msgspec.Struct, kw_only=True):
    """POST /api/events/batch from our own worker (foreign shapes are converted to this)."""

    worker_id: str
    events: list[Report]


class Reported(msgspec.Struct, kw_only=True):
    """The answer: per report its event id (0 when not accepted) and its outcome, in the order sent."""

    status: str
    event_ids: list[int]
    outcomes: list[Outcome]
    commands_generated: int = 0


class Heartbeat(msgspec.Struct, kw_only=True):
    """POST /api/commands/heartbeat: renew every lease a worker holds, [(execution_id, command_id, claim_token)]."""

    worker_id: str
    leases: list[tuple[int, int, int]]
    active: int = 0
    capacity: int = 0


class HeartbeatAnswer(msgspec.Struct, kw_only=True):
    """Command ids to abandon: `cancelled` by the user, `lost` to another claim."""

    cancelled: list[int]
    lost: list[int]


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_encoder = msgspec.json.Encoder(enc_hook=str)


def encode(value: Any) -> bytes:
    """Return `value` as JSON; what JSON cannot say (dates, decimals, paths) becomes its text."""
    return _encoder.encode(value)


def encoded(value: Any) -> bytes:
    """Return `value` as JSON; integers over 64 bits and lone surrogates take the slow way."""
    try:
        return encode(value)
    except (OverflowError, UnicodeEncodeError):
        text = json.dumps(_finite(value), default=str, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", errors="replace")


def _finite(value: Any) -> Any:
    # JSON has no NaN and no infinity: null, as the quick way has it.
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


def decode(body: bytes, kind: type[T], *, bytes_max: int = BODY_BYTES_MAX) -> T:
    """Return `body` as a `kind`.

    Errors: TooLarge over `bytes_max` or NESTING_MAX levels; Invalid with a JSON pointer for a wrong type.
    """
    if len(body) > bytes_max:
        raise TooLarge(f"body: expected at most {bytes_max} bytes, found {len(body)}")
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind, strict=False)
    try:
        value: T = decoder.decode(body)
    except RecursionError as exc:
        raise TooLarge(f"body: expected at most {NESTING_MAX} levels of nesting, found more") from exc
    except msgspec.ValidationError as exc:
        message, _, place = str(exc).partition(" - at `$")
        pointer = pointer_of(place.rstrip("`"))
        raise Invalid(_told(message, kind, pointer), pointer=pointer) from exc
    except msgspec.DecodeError as exc:
        raise Invalid(f"expected JSON, found other text: {exc}") from exc
    except UnicodeDecodeError as exc:
        raise Invalid(f"expected JSON in UTF-8, found other bytes at {exc.start}") from exc
    return value


def _told(message: str, kind: Any, pointer: str) -> str:
    """Return what msgspec says of a wrong value, as all our errors say it."""
    if message.startswith("Invalid enum value "):
        words = _words_at(msgspec.inspect.type_info(kind), pointer.split("/")[1:])
        return f"expected one of {', '.join(map(str, words))}, found {message.removeprefix('Invalid enum value ')}"
    for pattern, told in _TELLINGS:
        if pattern.match(message):
            return pattern.sub(told, message)
    return f"expected another value, found: {message}"


_TELLINGS = tuple(
    (re.compile(pattern), told)
    for pattern, told in (
        (r"Expected (.*), got (.*)", r"expected \1, found \2"),
        (r"Object missing required field (.*)", r"expected the field \1, found none"),
        (r"Object contains unknown field (.*)", r"expected known fields, found \1"),
        (r"Invalid (.*)", r"expected a valid \1, found another text"),
        (r"Expected (.*)", r"expected \1, found another value"),
    )
)


def _words_at(kind: Any, parts: list[str]) -> list[Any]:
    """Return the values that a Literal at a pointer into a type takes."""
    if isinstance(kind, msgspec.inspect.UnionType):
        return [word for one in kind.types for word in _words_at(one, parts)]
    if isinstance(kind, msgspec.inspect.LiteralType):
        return list(kind.values)
    if isinstance(kind, msgspec.inspect.StructType) and parts:
        field = next((one for one in kind.fields if one.encode_name == parts[0]), None)
        return [] if field is None else _words_at(field.type, parts[1:])
    if isinstance(kind, msgspec.inspect.ListType) and parts:
        return _words_at(kind.item_type, parts[1:])
    return []


def pointer_of(path: str) -> str:
    """Return msgspec's `.events[0].step` as the JSON pointer /events/0/step."""
    return path.replace("[", ".").replace("]", "").replace(".", "/")
