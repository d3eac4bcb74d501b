"""The artifact and result_fetch tools: a result by its step, by its reference, and what is neither."""

from typing import Any

import pytest

from noetl_common.core.outcome import Outcome
from noetl_common.core.scope import NeedPayload, Scope
from noetl_common.core.values import Ref, Value
from services.worker.tools import Call, dispatch

PAYLOADS: dict[int, Any] = {1: {"count": 3, "data": [1, 2, 3]}, 2: {"make": {"count": 500}}, 3: [1, 2]}
RESULTS = {
    "plain": Ref(execution_id=7, ref_id=1, tier="disk", label="plain"),
    "tasks": Ref(execution_id=7, ref_id=2, tier="disk", label="tasks", shape="pipeline"),
}


async def no_credential(alias: str) -> dict[str, Any]:
    raise AssertionError(alias)


def load(ref: Ref, key: str | None) -> Any:
    if ref.ref_id not in PAYLOADS:
        raise NeedPayload([(ref, key)])
    payload = PAYLOADS[ref.ref_id]
    return payload if key is None else payload[key]


async def fetch(kind: str = "artifact", *, config: dict[str, Any] | None = None, **given: Any) -> Outcome:
    return await dispatch(
        Call(
            kind=kind,
            label="lazy",
            step="lazy",
            execution_id=7,
            scope=Scope(load=load, workload=Value({}), ctx={}, results=RESULTS),
            credential=no_credential,
            config=config or {},
            input=given,
        )
    )


@pytest.mark.parametrize(
    ("given", "payload"),
    [
        ("plain", PAYLOADS[1]),
        (RESULTS["plain"].uri, PAYLOADS[1]),
        ("tasks", {"count": 500}),
        (RESULTS["tasks"].uri, {"count": 500}),
        ("noetl://execution/6/result/other/3", [1, 2]),
        ({"kind": "result_ref", "ref": RESULTS["plain"].uri}, PAYLOADS[1]),
    ],
)
async def test_a_result_comes_back_as_templates_see_it(given: Any, payload: Any) -> None:
    assert (await fetch(result_ref=given)).data == payload
    assert (await fetch("result_fetch", config={"ref": given})).data == payload


async def test_a_result_that_is_not_here_is_asked_for() -> None:
    with pytest.raises(NeedPayload, match="noetl://execution/6/result/other/99"):
        await fetch(result_ref="noetl://execution/6/result/other/99")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "result_ref: expected "),
        ({"result_ref": None}, "a small result has no `_ref`, name its step instead"),
        ({"result_ref": "nowhere"}, "found 'nowhere'"),
        ({"result_ref": "noetl://execution/99999999999999999999/result/x/1"}, "expected a step's name"),
        ({"action": "put", "result_ref": "plain"}, "action: expected get, found 'put'"),
    ],
)
async def test_what_is_no_reference_is_an_error_that_says_so(given: dict[str, Any], says: str) -> None:
    outcome = await fetch(**given)
    assert outcome.error is not None and outcome.error["kind"] == "config" and says in outcome.error["message"]
