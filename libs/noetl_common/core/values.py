"""Values by reference: how a payload is named in events, states and command contexts.

A payload never rides in an event. What is small and needed to route (<= 512 bytes) may stand inline
as ``{"v": ...}``; everything else is a ``Ref`` to a row of ``noetl.result_ref``.
"""

import re
from typing import Any, Literal, get_args

import msgspec

Tier = Literal["db", "disk", "pvc", "minio", "s3", "gcs", "kv"]
STORE_KINDS = frozenset(("auto", *get_args(Tier), "memory", "object"))  # what an author may ask for; see docs
Shape = Literal["plain", "pipeline", "loop", "rows"]
EXPONENT = re.compile(rb"\d[eE][+-]?\d\d")  # of two digits or more; also found in texts, which then go by reference
INLINE_VALUE_BYTES_MAX = 512  # a variable that stands in an event or in the state
NULL_REF_ID = 0  # the result is null: there is no payload to read
PAYLOAD_INLINE_BYTES_MAX = 8192  # a payload that stands in its row of noetl.result_ref
KV_COPY_BYTES_MIN = 64 * 1024  # the smallest payload that is also copied to NATS
KV_COPY_BYTES_MAX = 1_000_000  # the largest: a message of NATS holds 1 MiB


class Ref(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The name of one stored payload.

    Shapes: `shape` says how templates see it: plain = the payload itself; pipeline = {label: result} of a
    tool list, in order; loop = the results of loop epoch `epoch`, one result_ref row an item, no row of its own;
    rows = the rows alone of the table that the rest of the reference names.
    Units: bytes are of the encoded JSON, before compression.
    """

    execution_id: int
    ref_id: int
    tier: Tier = "db"
    bytes: int = 0
    sha256: str = ""
    shape: Shape = "plain"
    label: str = ""  # the step (or step.task) that made it
    content_type: str = "application/json"
    epoch: int = 0  # shape loop only
    size: int = 0  # shapes loop and rows only: items
    failed: int = 0  # shape loop only: items that failed
    skipped: int = 0  # shape loop only: items never begun, because others failed
    tolerated: bool = False  # shape loop only: items failed, but no more than may
    halted: bool = False  # shape loop only: a claim failed, whatever became of the items

    @property
    def uri(self) -> str:
        """The reference as clients see it: noetl://execution/<id>/result/<label>/<ref id>."""
        return f"noetl://execution/{self.execution_id}/result/{self.label}/{self.ref_id}"


def loop_stats(ref: Ref) -> dict[str, int]:
    """Return {total, success, failed} of a loop's result; items never begun are in the total alone."""
    return {"total": ref.size, "success": ref.size - ref.failed - ref.skipped, "failed": ref.failed}


class Value(msgspec.Struct, frozen=True, omit_defaults=True):
    """One variable: inline (`v`) or by reference (`ref`); exactly one of the two counts."""

    v: Any = None
    ref: Ref | None = None


class TierRule(msgspec.Struct, frozen=True, kw_only=True):
    """Which tier a payload belongs to: by its size and the settings alone, whatever was up when it was stored."""

    default: Tier = "disk"
    copies: bool = False  # payloads of KV_COPY_BYTES_MIN to KV_COPY_BYTES_MAX are copied to NATS
    pvc_over_bytes: int | None = None  # larger ones go to the mounted volume; None: there is none

    def of(self, size: int) -> Tier:
        """Return the tier that references name; `kv` says that a copy was made of what the durable tier holds."""
        if size <= PAYLOAD_INLINE_BYTES_MAX:
            return "db"
        if self.copies and KV_COPY_BYTES_MIN <= size <= KV_COPY_BYTES_MAX:
            return "kv"
        return self.durable(size)

    def durable(self, size: int) -> Tier:
        """Return the tier that must have a payload over PAYLOAD_INLINE_BYTES_MAX before anything names it."""
        return "pvc" if self.pvc_over_bytes is not None and size > self.pvc_over_bytes else self.default


def fits_inline(body: bytes, bytes_max: int) -> bool:
    """Return True when JSON text may stand in a jsonb column: small, and without the NUL that jsonb refuses.

    Small there as well: jsonb writes a number with an exponent out, 1e300 with all of its 300 zeros.
    """
    return len(body) <= bytes_max and b"\\u0000" not in body and EXPONENT.search(body) is None


def printable(value: Any) -> Any:
    """Return a message for people with every NUL and lone surrogate, which no column takes, replaced."""
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd").encode(errors="replace").decode()
    if isinstance(value, dict):
        return {printable(key): printable(part) for key, part in value.items()}
    return [printable(part) for part in value] if isinstance(value, (list, tuple)) else value


def reference_of(ref: Ref) -> dict[str, Any]:
    """Return the `reference` object of an event envelope that names `ref`."""
    fields: dict[str, Any] = msgspec.to_builtins(ref)
    return {**fields, "kind": "result_ref", "ref": ref.uri}


def ref_in(reference: dict[str, Any]) -> Ref:
    """Return the Ref in an envelope's `reference`; unknown keys are ignored. A tier of old, `object`, is `disk` now."""
    named = {**reference, "tier": "disk"} if reference.get("tier") == "object" else reference
    return msgspec.convert(named, Ref, strict=False)


def ref_or_none(reference: dict[str, Any] | None) -> Ref | None:
    """Return the Ref in an envelope's `reference`, None when there is none."""
    return ref_in(reference) if reference else None
