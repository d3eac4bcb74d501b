"""Results as templates see them: every spelling that playbooks use for a step's or a tool's result."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from noetl_common.core.outcome import Outcome
from noetl_common.core.tables import Rows, rows_in
from noetl_common.core.values import NULL_REF_ID, Ref, fits_inline
from noetl_common.core.views import Load, NeedPayload, View, plain, unwrapped

__all__ = [
    "Carried",
    "Load",
    "NeedPayload",
    "carried_in",
    "extract",
    "merged",
    "output_raw_view",
    "output_view",
    "plain",
    "preview",
    "value_view",
    "view",
]

CARRIED = "_carried"  # beside the results by label in the payload between two segments of a pipeline
_COMMAND = re.compile(r"command_\d+\Z")
_SQL_KEYS = frozenset({"rows", "row_count", "affected_rows"})
SELECTED_BYTES_MAX = 4096  # of the fields that an author wants at hand
_PREVIEW_ITEMS = 3
_PREVIEW_KEYS_MAX = 100  # more do not fit in a preview, whatever they are
_PREVIEW_TEXT_CHARS = 80


def view(ref: Ref, load: Load) -> Any:
    """Return what a template sees for a step's result: its own keys first, then the accepted other spellings."""
    return ResultView(ref, load) if ref.ref_id != NULL_REF_ID else None


def value_view(ref: Ref, load: Load) -> Any:
    """Return what a template sees for a variable kept by reference: the payload and no other spellings."""
    return ResultView(ref, load, spellings=False)


def merged(labelled: Mapping[str, Any]) -> Any:
    """Return a pipeline's result as its step shows it.

    Shapes: one item gives that item's data; several give the fields of all objects among them, later ones winning;
    without any object the only value that is not None, else the labelled mapping itself.
    """
    return _merged(labelled, [plain(value) for value in labelled.values()])


def _merged(labelled: Mapping[str, Any], payloads: list[Any]) -> Any:
    if len(payloads) == 1:
        return payloads[0]
    objects = [payload for payload in payloads if isinstance(payload, dict)]
    if objects:
        return {key: value for payload in objects for key, value in payload.items()}
    others = [payload for payload in payloads if payload is not None]
    return others[0] if len(others) == 1 else dict(zip(labelled, payloads, strict=True))


class Carried(NamedTuple):
    """What the segments of a pipeline hand on: results by label, names that tasks `set`, and values under `iter`."""

    labelled: dict[str, Any]
    names: dict[str, Any]
    iteration: dict[str, Any]

    def payload(self) -> dict[str, Any]:
        """Return it as one payload. Shapes: {label: result, "_carried": {names, iter}}, the latter when not empty."""
        more = {"names": self.names, "iter": self.iteration} if self.names or self.iteration else None
        return {**self.labelled, CARRIED: more} if more else self.labelled


def carried_in(payload: Mapping[str, Any]) -> Carried:
    """Return what the payload of an earlier segment hands on."""
    more = payload.get(CARRIED) or {}
    labelled = {label: data for label, data in payload.items() if label != CARRIED}
    return Carried(labelled, dict(more.get("names", {})), dict(more.get("iter", {})))


def extract(payload: Any, *, bytes_max: int = 1024, select: Sequence[str] = ()) -> dict[str, Any] | None:
    """Return the top-level scalars of an object, in order, as far as they fit; None for anything else.

    First the fields that `select` names, whatever they are, as far as they fit in SELECTED_BYTES_MAX of their own.
    """
    if not isinstance(payload, Mapping):
        return None
    kept = _selected(payload, select)
    used = 2
    for key, value in payload.items():
        if key in kept or (value is not None and not isinstance(value, (str, int, float, bool))):
            continue
        text = msgspec.json.encode({str(key): value})
        if fits_inline(text, bytes_max - used):
            kept[str(key)] = value
            used += len(text)
    return kept


def _selected(payload: Mapping[Any, Any], select: Sequence[str]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    used = 2
    for name in select:
        if name not in payload or rows_in(payload[name]):
            continue
        text = msgspec.json.encode({name: payload[name]}, enc_hook=str)
        if fits_inline(text, SELECTED_BYTES_MAX - used):
            kept[name] = msgspec.json.decode(text)[name]
            used += len(text)
    return kept


def preview(payload: Any, *, bytes_max: int = 512) -> Any:
    """Return a small likeness of a payload for people: a few items, long texts cut."""
    seen = payload if rows_in(payload) else plain(payload)
    for depth in (3, 2, 1):
        likeness = _likeness(seen, depth)
        if fits_inline(msgspec.json.encode(likeness), bytes_max):
            return likeness
    return _kind_and_size(seen)


def output_view(outcome: Outcome) -> Any:
    """Return `output` for rules, `then.set`, step `set` and arcs: the outcome envelope, falling through to the data."""
    return OutputView(outcome)


def output_raw_view(outcome: Outcome) -> Any:
    """Return `output` for a task's own `set`: the data itself, the envelope's names where the data has none."""
    return RawOutputView(outcome)


class ResultView(View):
    """A stored result. A read of one key asks for that key alone, so that a small extract may answer it."""

    def __init__(self, ref: Ref, load: Load, *, spellings: bool = True) -> None:
        self.ref = self._ref = ref
        self._load = load
        self._spellings = spellings

    def unwrap(self) -> Any:
        """Return the whole result; of a pipeline the merged mapping."""
        payload = self._load(self._ref, None)
        return merged(payload) if self._ref.shape == "pipeline" and isinstance(payload, Mapping) else plain(payload)

    def peek(self) -> Any:
        """Return the result, the rows of a table in it not loaded."""
        return self._seen()

    def __getitem__(self, key: Any) -> Any:
        return self.member(key) if isinstance(key, str) else self._seen()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._seen())

    def __len__(self) -> int:
        return len(self._seen())

    def __bool__(self) -> bool:
        return bool(self._seen())

    def member(self, name: str) -> Any:
        """Return the result's own key, else what another spelling of the name stands for."""
        if name in ("_ref", "_store", "_preview") and self._spellings:
            return self._storage(name)
        try:
            return self._own(name)
        except KeyError:
            if not self._spellings:
                raise
        return self._other_spelling(name)

    def _own(self, name: str) -> Any:
        if self._ref.shape == "pipeline":
            # The fields of the merged results are the step's own; a label that is none of them comes after.
            whole = self._seen()
            if not isinstance(whole, dict):
                raise KeyError(name)
            return whole[name]
        try:
            return self._load(self._ref, name)
        except (TypeError, IndexError):
            raise KeyError(name) from None

    def _seen(self) -> Any:
        """Return the whole result, the rows of a table in it not loaded."""
        payload = self._load(self._ref, None)
        if self._ref.shape == "pipeline" and isinstance(payload, Mapping):
            return _merged(payload, list(payload.values())) if rows_in(payload) else merged(payload)
        return payload if rows_in(payload) else plain(payload)

    def _storage(self, name: str) -> Any:
        if self._ref.tier == "db":
            raise KeyError(name)
        if name == "_ref":
            return self._ref.uri
        return self._ref.tier if name == "_store" else preview(self._seen())

    def _other_spelling(self, name: str) -> Any:
        shape = self._ref.shape
        if shape == "pipeline":
            labelled = self._load(self._ref, None)
            if name in labelled:
                return labelled[name]
            if name == "results":
                return labelled
        if name in ("data", "result"):
            return self.member("results") if shape == "loop" and name == "data" else self
        if name == "status":
            has_failed = self._ref.halted or (self._ref.failed and not self._ref.tolerated)
            return "error" if shape == "loop" and has_failed else "success"
        try:
            return _spelling_of(self._seen(), name)
        except KeyError:
            if name != "execution_id":
                raise
        return str(self._ref.execution_id)  # of the sub-playbook, when the result is its


class OutputView(View):
    """The outcome envelope of the call that has just ended."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._content = _content_of(outcome)

    def unwrap(self) -> Any:
        """Return the envelope as an object."""
        return self._fields()

    def member(self, name: str) -> Any:
        """Return a part of the envelope, else the data's key of that name."""
        outcome = self._outcome
        if name == "status":
            return outcome.status
        if name in ("data", "response"):
            return self._content
        if name == "error" and outcome.error is not None:
            return _error_of(outcome)
        if name == "http":
            return outcome.http or _http_of(self._content)
        if name in ("pg", "py", "meta"):
            return getattr(outcome, name)
        if name == "result":
            return self._content
        return _member(self._content, name)

    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self._outcome, data=None))
        fields["data"] = plain(self._outcome.data)
        fields["status"] = self._outcome.status
        if self._outcome.error is not None:
            fields["error"] = _error_of(self._outcome)
        return fields


class RawOutputView(View):
    """The data of the call that has just ended, with the envelope's names where the data has none of its own."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._content = _content_of(outcome)

    def unwrap(self) -> Any:
        """Return the data itself."""
        return plain(self._outcome.data)

    def member(self, name: str) -> Any:
        """Return the data's own key, else the envelope's part of that name."""
        data = self._outcome.data
        if isinstance(data, Mapping) and name in data:
            return data[name]
        return OutputView(self._outcome).member(name)


class HttpContent(View):
    """The data of an http call: status_code, headers, data, body; other names are read in the body."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._content = content

    def unwrap(self) -> Any:
        """Return the call's data as the tool gave it."""
        return plain(self._content)

    def member(self, name: str) -> Any:
        """Return the call's own key, else the body's."""
        if name in self._content:
            return self._content[name]
        return _member(self._content.get("body", self._content.get("data")), name)


def _content_of(outcome: Outcome) -> Any:
    content = outcome.data
    return HttpContent(content) if isinstance(content, Mapping) and _is_http(content) else content


def _is_http(content: Mapping[str, Any]) -> bool:
    return "status_code" in content and ("body" in content or "data" in content)


def _http_of(content: Any) -> dict[str, Any]:
    """Return `output.http` of a step that ended: of its outcome only the data is kept, which says it too."""
    try:
        status, headers = (_member(content, name) for name in ("status_code", "headers"))
    except KeyError:
        return {}
    return {"status": status, "headers": headers}


def _error_of(outcome: Outcome) -> dict[str, Any]:
    # Rules read these names without asking first whether the tool could know them.
    error = {"kind": "unknown", "code": "", "message": "", "retryable": False, **(outcome.error or {})}
    status = error.get("http_status", error.get("status", outcome.http.get("status")))
    if status is not None:
        error = {"http_status": status, "status": status, **error}
    pg_code = error.get("pg_code", outcome.pg.get("code"))
    return error if pg_code is None else {"pg_code": pg_code, **error}


def _member(content: Any, name: str) -> Any:
    if isinstance(content, View):
        return content.member(name)
    if isinstance(content, Mapping):
        return content[name]
    return _spelling_of(content, name)


def _spelling_of(payload: Any, name: str) -> Any:
    """Return what a name that is no key of the payload stands for; KeyError when for nothing."""
    if isinstance(payload, Mapping):
        if _COMMAND.match(name) and not _SQL_KEYS.isdisjoint(payload):
            return payload
        if _is_http(payload):
            return _member(payload.get("body", payload.get("data")), name)
        raise KeyError(name)
    if isinstance(payload, list | Rows):
        if name in ("rows", "results"):
            return payload
        if name in ("count", "row_count"):
            return len(payload)
    raise KeyError(name)


def _likeness(payload: Any, depth: int) -> Any:
    payload = payload if isinstance(payload, Rows) else unwrapped(payload)
    if isinstance(payload, str):
        return payload if len(payload) <= _PREVIEW_TEXT_CHARS else payload[:_PREVIEW_TEXT_CHARS] + "..."
    if isinstance(payload, Mapping):
        if depth == 0 or len(payload) > _PREVIEW_KEYS_MAX:
            return _kind_and_size(payload)
        return {str(key)[:_PREVIEW_TEXT_CHARS]: _likeness(value, depth - 1) for key, value in payload.items()}
    if isinstance(payload, list | Rows):
        if depth == 0:
            return _kind_and_size(payload)
        shown = [_likeness(item, depth - 1) for item in payload[:_PREVIEW_ITEMS]]
        return [*shown, f"... {len(payload)} items"] if len(payload) > _PREVIEW_ITEMS else shown
    return payload


def _kind_and_size(payload: Any) -> Any:
    if isinstance(payload, Mapping):
        return f"object of {len(payload)} keys"
    if isinstance(payload, list | Rows):
        return f"list of {len(payload)} items"
    return f"text of {len(payload)} characters" if isinstance(payload, str) else payload
