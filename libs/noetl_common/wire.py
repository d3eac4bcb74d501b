"""What worker and ingest say to each other over HTTP, and the codec with its limits.

Ids are integers here; the user API shows them as strings.
"""

from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from noetl_common.core.commands import CommandContext, Item
from noetl_common.core.events import Envelope
from noetl_common.core.values import PAYLOAD_INLINE_BYTES_MAX as PAYLOAD_INLINE_BYTES_MAX
from noetl_common.core.values import Ref, Shape, Tier
from noetl_common.errors import Invalid, TooLarge

BODY_BYTES_MAX = 4 * 1024 * 1024
BATCH_EVENTS_MAX = 256
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
    )


class Claimed(msgspec.Struct, kw_only=True):
    """The answer to Claim. `contexts` and `results` hold each context and each small result they name, once."""

    commands: list[ClaimedCommand]
    contexts: dict[int, CommandContext]
    results: list[ResultRow]
    lease_s: float


class Report(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One terminal report of one command, with the index rows (and small payloads) of its results."""

    execution_id: int
    event_type: Literal["command.completed", "command.failed", "command.cancelled"]
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
        raise TooLarge(f"body: expected at most {NESTING_MAX} levels of nesting") from exc
    except msgspec.ValidationError as exc:
        message, _, place = str(exc).partition(" - at `$")
        raise Invalid(message, pointer=pointer_of(place.rstrip("`"))) from exc
    except msgspec.DecodeError as exc:
        raise Invalid(f"not JSON: {exc}") from exc
    except UnicodeDecodeError as exc:
        raise Invalid(f"not JSON: expected UTF-8, found other bytes at {exc.start}") from exc
    return value


def pointer_of(path: str) -> str:
    """Return msgspec's `.events[0].step` as the JSON pointer /events/0/step."""
    return path.replace("[", ".").replace("]", "").replace(".", "/")
