"""Scope: which value a name has, and that nothing is loaded before it is read."""

from typing import Any

import pytest

from noetl_common.core.scope import NeedPayload, Scope, system_names
from noetl_common.core.templates import render
from noetl_common.core.values import Ref, Value

BIG = Ref(execution_id=1, ref_id=9)
STEP = Ref(execution_id=1, ref_id=2)


def load(ref: Ref, key: str | None) -> Any:
    payload = {STEP: {"rows": [1, 2], "count": 2}}.get(ref)
    if payload is None:
        raise NeedPayload([(ref, key)])
    return payload if key is None else payload[key]


def scope(**more: Any) -> Scope:
    fields: dict[str, Any] = {
        "load": load,
        "workload": Value({"name": "workload", "execution_id": "mine", "only": 1, "start": "shadowed"}),
        "ctx": {"name": Value("ctx"), "big": Value(ref=BIG)},
        "results": {"start": STEP},
        "system": system_names(execution_id=5, catalog_id=6, path="a/b"),
    }
    return Scope(**{**fields, **more})


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ execution_id }}", "5"),
        ("{{ workload.execution_id }}", "mine"),
        ("{{ job.id }}", "5"),
        ("{{ name }}", "ctx"),
        ("{{ ctx.name }}", "ctx"),
        ("{{ workload.name }}", "workload"),
        ("{{ only }}", 1),
        ("{{ ctx.only }}", 1),
        ("{{ ctx.start.count }}", 2),
        ("{{ start.count }}", 2),
        ("{{ steps.start.count }}", 2),
        ("{{ steps.other is defined }}", False),
        ("{{ path }}", "a/b"),
        ("{{ iter.x }}", None),
    ],
)
def test_each_name_has_its_place(template: str, expected: Any) -> None:
    assert render(template, scope(), where="t") == expected


def test_locals_win_over_the_iteration_and_the_iteration_over_ctx() -> None:
    item = scope(iteration={"name": "item", "_index": 3, "_total": 4})
    assert render("{{ name }} {{ iter.name }} {{ _index }} {{ loop_index }} {{ _total }}", item, where="t") == (
        "item item 3 3 4"
    )
    child = item.extended(locals={"name": "local", "execution_id": "forged"}, iteration={"seen": 1})
    assert render("{{ name }} {{ iter.name }} {{ seen }} {{ execution_id }}", child, where="t") == "local item 1 5"
    assert render("{{ name }} {{ seen is defined }}", item, where="t") == "item False"


def test_a_variable_by_reference_is_loaded_only_when_it_is_read() -> None:
    assert render("{{ ctx.name }}", scope(), where="t") == "ctx"
    with pytest.raises(NeedPayload) as need:
        render("{{ ctx.big }}", scope(), where="t")
    assert need.value.needs == [(BIG, None)]


def test_a_workload_by_reference_answers_key_by_key() -> None:
    by_reference = scope(workload=Value(ref=STEP))
    assert render("{{ workload.count }} {{ count }}", by_reference, where="t") == "2 2"
    assert render("{{ workload.status is defined }}", by_reference, where="t") is False
    assert render("{{ workload }}", by_reference, where="t") == {"rows": [1, 2], "count": 2}


def test_an_unknown_name_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        scope().lookup("nobody")


def test_code_sees_every_name_as_a_mapping_of_plain_values() -> None:
    context = scope().as_mapping()
    assert context["start"] == {"rows": [1, 2], "count": 2}
    assert context.get("execution_id") == "5"
    assert context.get("nobody") is None
    assert {"ctx", "workload", "name", "only", "start", "job"} <= set(context)
