"""The artifact and result_fetch tools: the whole stored payload of a result, by its reference or by its step."""

import re
from typing import Any

from noetl_common.core.outcome import Outcome
from noetl_common.core.values import Ref
from noetl_common.errors import Invalid, NoetlError, NotFound, ReferenceNotAvailable
from services.worker.tools import Call, failed

REFERENCE = re.compile(r"noetl://execution/(\d{1,19})/result/(.*?)/?(\d{1,19})")
FIELDS = ("result_ref", "ref", "uri", "step")
EXPECTED = "a step's name or noetl://execution/<id>/result/<label>/<ref id>"


async def run(call: Call) -> Outcome:
    """Return the payload that `result_ref` (or `ref`) names.

    Errors: error.kind is config for what is no reference, not_found for one that nothing is stored under.
    """
    action = str(call.config.get("action") or call.input.get("action") or "get").lower()
    if action != "get":
        return failed("config", f"{call.kind}: action: expected get, found {action!r}", code="INVALID")
    try:
        return Outcome(data=call.scope.result(_wanted(call)))
    except (ReferenceNotAvailable, NotFound) as exc:
        return failed("not_found", f"{call.kind}: {exc}", code="RESULT_NOT_FOUND")
    except NoetlError as exc:
        return failed("config", f"{call.kind}: {exc}", code=exc.code)


def _wanted(call: Call) -> Ref:
    fields = {**call.config, **call.input}
    name = next((field for field in FIELDS if field in fields), None)
    if name is None:
        raise Invalid(f"result_ref: expected {EXPECTED}, found nothing")
    given: Any = fields[name]
    if isinstance(given, dict):
        given = given.get("ref") or given.get("uri")
    if given is None or given == "":
        raise Invalid(f"{name}: expected {EXPECTED}, found null; a small result has no `_ref`, name its step instead")
    return ref_named(call, str(given), field=name)


def ref_named(call: Call, text: str, *, field: str = "ref") -> Ref:
    """Return the reference that a text names. Errors: Invalid names the field."""
    # The run's own results are known with their shape, so they come back as templates see them.
    known = call.scope.stored(text)
    if known is not None:
        return known
    found = REFERENCE.fullmatch(text)
    if found is None or max(int(found[1]), int(found[3])) >= 1 << 63:
        raise Invalid(f"{field}: expected {EXPECTED}, found {text[:200]!r}")
    return Ref(execution_id=int(found[1]), ref_id=int(found[3]), label=found[2])
