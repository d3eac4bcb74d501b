"""Results: every spelling that playbooks use for what a step or a tool gave."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noetl_common.core.outcome import Outcome
from noetl_common.core.results import extract, merged, output_raw_view, output_view, plain, preview, view
from noetl_common.core.scope import NeedPayload, Scope
from noetl_common.core.templates import render
from noetl_common.core.values import Ref, Value

# A slow machine is no failure, and nothing is left behind.
CALM = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


def read(template: str, payload: Any = None, *, output: Any = None, **ref_fields: Any) -> Any:
    asked: list[str | None] = []

    def load(ref: Ref, key: str | None) -> Any:
        asked.append(key)
        return payload if key is None else payload[key]

    ref = Ref(execution_id=1, ref_id=2, label="step", **ref_fields)
    locals_seen = {} if output is None else {"output": output}
    scope = Scope(load=load, workload=Value({}), ctx={}, results={"step": ref}, locals=locals_seen)
    return render(template, scope, where="t")


ROWS = {"rows": [{"a": 1}, {"a": 2}], "row_count": 2}
PIPELINE = {"fetch": {"n": 1, "same": "first"}, "store": {"same": "last", "items": [5]}}
LOOP = {"results": [{"x": 1}, {"x": 2}], "stats": {"total": 2, "success": 1, "failed": 1}, "count": 2}


@pytest.mark.parametrize(
    ("template", "payload", "expected"),
    [
        ("{{ step }}", ROWS, ROWS),
        ("{{ step.rows[0].a }}", ROWS, 1),
        ("{{ step.data.rows[1].a }}", ROWS, 2),
        ("{{ step.result.row_count }}", ROWS, 2),
        ("{{ step.command_0.rows | length }}", ROWS, 2),
        ("{{ step.status }}", ROWS, "success"),
        ("{{ step.error is defined }}", ROWS, False),
        ("{{ step.status }} {{ step.data.x }}", {"status": "ready", "data": {"x": 3}}, "ready 3"),
        ("{{ step.items }}", {"items": [1]}, [1]),
        ("{{ step.paging.page }}", {"status_code": 200, "body": {"paging": {"page": 2}}}, 2),
        ("{{ step.execution_id }}", {"n": 1}, "1"),
        ("{{ step | length }} {{ 'rows' in step }} {{ step.rows[0:1] | length }}", ROWS, "2 True 1"),
        ("{{ step.data }}", [1, 2], [1, 2]),
        ("{{ step.rows[0] }}{{ step[1] }}{{ step.count }}", [1, 2], "122"),
        ("{{ step == [1, 2] }} {{ step + [3] }}", [1, 2], "True [1, 2, 3]"),
        ("{{ step | tojson }}", [1], "[1]"),
        ("{{ step + 1 }}", 41, 42),
        ("{{ 'yes' if step else 'no' }}", {}, "no"),
        ("{{ step.upper() }}", "abc", "ABC"),
        ("{% for r in step %}{{ r }}{% endfor %}", [1, 2], "12"),
        ("{{ step._ref is defined }}", ROWS, False),
    ],
)
def test_a_result_answers_to_its_own_keys_and_the_accepted_spellings(
    template: str, payload: Any, expected: Any
) -> None:
    assert read(template, payload) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ step }}", {"n": 1, "same": "last", "items": [5]}),
        ("{{ step.n }}{{ step.same }}", "1last"),
        ("{{ step.fetch.same }}", "first"),
        ("{{ step.results.store.items }}", [5]),
        ("{{ step.data.items }}", [5]),
        ("{{ step.get('n') }}", 1),
    ],
)
def test_a_pipeline_shows_its_merged_fields_and_its_labels(template: str, expected: Any) -> None:
    assert read(template, PIPELINE, shape="pipeline") == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ step.results[1].x }}", 2),
        ("{{ step.data }}", [{"x": 1}, {"x": 2}]),
        ("{{ step.stats.failed }}{{ step.count }}", "12"),
        ("{{ step.status }}", "error"),
    ],
)
def test_a_loop_shows_its_results_and_counts(template: str, expected: Any) -> None:
    assert read(template, LOOP, shape="loop", size=2, failed=1, epoch=1) == expected


def test_a_result_in_a_store_names_its_reference() -> None:
    assert read("{{ step._ref }}", ROWS, tier="disk") == "noetl://execution/1/result/step/2"
    assert read("{{ step._store }}", ROWS, tier="disk") == "disk"
    assert read("{{ step._preview.row_count }}", ROWS, tier="disk") == 2


def test_a_read_of_one_key_asks_for_that_key_alone() -> None:
    asked: list[str | None] = []

    def load(ref: Ref, key: str | None) -> Any:
        asked.append(key)
        if key == "count":
            return 3
        raise NeedPayload([(ref, key)])

    seen = view(Ref(execution_id=1, ref_id=2), load)
    assert seen.member("count") == 3
    assert asked == ["count"]
    with pytest.raises(NeedPayload):
        plain([seen])


def test_merging_a_pipeline_keeps_lists_scalars_and_the_fields_of_objects() -> None:
    assert merged({"only": [1, 2]}) == [1, 2]
    assert merged({"a": {"x": 1}, "b": [1], "c": {"x": 2}}) == {"x": 2}
    assert merged({"a": None, "b": [1]}) == [1]
    assert merged({"a": 1, "b": 2}) == {"a": 1, "b": 2}
    assert merged({}) == {}


HTTP = Outcome(
    data={"status_code": 200, "headers": {}, "data": {"meta": {"page": 4}}, "body": {"meta": {"page": 4}}},
    http={"status": 200, "headers": {}},
)
FAILED = Outcome(
    status="error", data={"code": 1}, error={"kind": "server_error", "retryable": True}, http={"status": 503}
)


@pytest.mark.parametrize(
    ("template", "outcome", "expected"),
    [
        ("{{ output.status }}", HTTP, "success"),
        ("{{ output.data.status_code }}", HTTP, 200),
        ("{{ output.data.data.meta.page }}", HTTP, 4),
        ("{{ output.data.meta.page }}", HTTP, 4),
        ("{{ output.response.meta.page }}", HTTP, 4),
        ("{{ output.status_code }}", HTTP, 200),
        ("{{ output.http.status }}", HTTP, 200),
        ("{{ output.data.rows[0].x }}", Outcome(data={"rows": [{"x": 1}]}), 1),
        ("{{ output.error.retryable }}", FAILED, True),
        ("{{ output.error.status }} {{ output.error.http_status }}", FAILED, "503 503"),
        ("{{ output.status == 'error' and output.http.status in [429, 503] }}", FAILED, True),
        ("{{ output.error is defined }}", HTTP, False),
        ("{{ output.error.kind }}", HTTP, None),
        ("{{ output.pg.code }}", Outcome(status="error", pg={"code": "23505"}, error={}), "23505"),
    ],
)
def test_output_is_the_envelope_and_falls_through_to_the_data(template: str, outcome: Outcome, expected: Any) -> None:
    assert read(template, output=output_view(outcome)) == expected


def test_output_in_a_tasks_own_set_is_the_data_itself() -> None:
    outcome = Outcome(data={"status": "mine", "n": 1})
    assert read("{{ output }}", output=output_raw_view(outcome)) == {"status": "mine", "n": 1}
    assert read("{{ output.status }}{{ output.n }}{{ output.data.n }}", output=output_raw_view(outcome)) == "mine11"
    assert read("{{ output.status }}", output=output_raw_view(Outcome(data={"n": 1}))) == "success"
    assert read("{{ output }}", output=output_view(outcome))["data"] == {"status": "mine", "n": 1}


def test_extracts_are_scalars_within_their_budget() -> None:
    assert extract({"n": 1, "rows": [1], "s": "x", "none": None}) == {"n": 1, "s": "x", "none": None}
    assert extract({"long": "x" * 2000, "n": 1}) == {"n": 1}
    assert extract([1]) is None


def test_selected_fields_are_extracted_whatever_they_are() -> None:
    payload = {"n": 1, "meta": {"a": [1, 2]}, "rows": [1], "long": "x" * 2000, "huge": "x" * 5000}
    assert extract(payload, select=("meta", "long", "huge", "gone")) == {
        "n": 1,
        "meta": {"a": [1, 2]},
        "long": "x" * 2000,
    }


@CALM
@given(
    st.recursive(
        st.none() | st.text(st.characters(codec="utf-8")) | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=300), inner),
        max_leaves=30,
    )
)
def test_a_preview_is_small(payload: Any) -> None:
    import msgspec

    assert len(msgspec.json.encode(preview(payload))) <= 512


def test_a_pipelines_fields_come_before_its_labels():
    payload = {"first": {"first": "field", "n": 1}, "last": {"n": 2}}
    assert read("{{ step.first }}", payload, shape="pipeline") == "field"
    assert read("{{ step.last.n }}", payload, shape="pipeline") == 2
    assert read("{{ step.results.first.n }}", payload, shape="pipeline") == 1


def test_the_outcome_of_a_stored_http_result_has_its_status_and_can_be_kept_whole():
    ref = Ref(execution_id=1, ref_id=2, label="step")
    payload = {"status_code": 201, "headers": {"a": "b"}, "body": {"n": 1}, "data": {"n": 1}}
    outcome = Outcome(data=view(ref, lambda ref, key: payload if key is None else payload[key]))
    assert read("{{ output.http.status }} {{ output.data.n }}", output=output_view(outcome)) == "201 1"
    assert read("{{ output }}", output=output_view(outcome))["data"] == payload
