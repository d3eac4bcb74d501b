"""Templates: native types, lenient names, and a sandbox with limits."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noetl_common.core.scope import NeedPayload, Scope, system_names
from noetl_common.core.templates import holds, is_template, names, render, render_text
from noetl_common.core.values import Ref, Value
from noetl_common.errors import TemplateFailed

# A slow machine is no failure, and nothing is left behind.
CALM = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])

WORKLOAD = {
    "page": "3",
    "empty": None,
    "flags": [True, False],
    "person": {"name": "O'Hara", "items": [1, 2], "count": 9},
    "zip": "00700",
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8"), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def unloaded(ref: Ref, key: str | None) -> Any:
    raise NeedPayload([(ref, key)])


def scope(**more: Any) -> Scope:
    return Scope(
        load=unloaded,
        workload=Value(WORKLOAD),
        ctx={"offset": Value(10)},
        results=more.pop("results", {}),
        system=system_names(execution_id=42, catalog_id=7, now=lambda: "2026-01-01T00:00:00Z"),
        locals=more,
    )


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ flags }}", [True, False]),
        ("  {{ (page | int) + 1 }}\n", 4),
        ("{{ zip }}", "00700"),
        ("10", "10"),
        ("true", "true"),
        ("{{ page }}{{ page }}", "33"),
        ("{{ nobody.knows['this'].name }}", None),
        ("{{ nobody is defined }}", False),
        ("{{ empty is none }}", True),
        ("{{ empty is defined }}", True),
        ("{{ empty | default(5) }}", 5),
        ("{{ nobody | default(0) | int }}", 0),
        ("{{ person.items }}", [1, 2]),
        ("{{ person.count }}", 9),
        ("{{ person.get('name') }}", "O'Hara"),
        ("""{{ person.name | tojson | replace("'", "''") }}""", "\"O''Hara\""),
        ("{{ flags[0] | string | lower }}", "true"),
        ("{{ execution_id[:1] }}-{{ job.uuid }}", "4-42"),
        ("{{ page if flags[1] else 'none of it' }}", "none of it"),
        ("{{ ([] or []) + ['x'] }}", ["x"]),
        ("{{ {'a': nobody} }}", {"a": None}),
        ("got {{ person.items }} and {{ empty }}.", "got [1, 2] and ."),
        ("{% for f in flags %}{{ loop.index }}{% if not loop.last %},{% endif %}{% endfor %}", "1,2"),
        ("{{ person.name | sqlstr }}", "'O''Hara'"),
        ("{{ '12.7' | int }}", 12),
        ("{{ now() }}", "2026-01-01T00:00:00Z"),
        ("{{ [3, 1] | sort | first }}", 1),
        ({"k": ["{{ page }}", 1, None]}, {"k": ["3", 1, None]}),
    ],
)
def test_a_template_keeps_the_type_of_its_value(template: Any, expected: Any) -> None:
    assert render(template, scope(), where="t") == expected


@CALM
@given(JSON)
def test_what_holds_no_template_comes_back_as_it_went_in(value: Any) -> None:
    if not any(mark in repr(value) for mark in ("{{", "{%", "{#")):
        assert render(value, scope(), where="t") == value


@CALM
@given(JSON)
def test_a_lone_expression_returns_the_very_value(value: Any) -> None:
    assert render("{{ given }}", scope(given=value), where="t") == value
    assert render("{{ given | tojson | fromjson }}", scope(given=value), where="t") == value


@CALM
@given(st.text(alphabet="{}%#ab|.()[]'\"0+-* \n", max_size=40))
def test_any_text_renders_or_fails_as_a_template(text: str) -> None:
    try:
        render(text, scope(), where="t")
    except TemplateFailed as failure:
        assert failure.where == "t"


@pytest.mark.parametrize(
    "bomb",
    [
        "{{ 'a' * 10000000 }}",
        "{{ [0] * 10000000 }}",
        "{{ 9 ** 99999 }}",
        "{{ 'a' | center(10000000) }}",
        "{{ 'a'.ljust(10000000) }}",
        "{{ '%09999999d' % 1 }}",
        "{{ range(10000000) }}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% set a = [1] %}" + "{% set a = [a, a] %}" * 60 + "{{ a }}",
        "{% set n = namespace(x='aa') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
        "{{ 'a'.replace('', 'b' * 100000).replace('b', 'b' * 100000) }}",
        "{{ 1.5 | round(999999999, 'ceil') }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% include 'x' %}",
        "{{ self }}",
        "{{ " + "(" * 3000 + ")" * 3000 + " }}",
        "{{ 'x' }}" + " " * 70000,
    ],
)
def test_what_would_run_away_is_refused(bomb: str) -> None:
    with pytest.raises(TemplateFailed):
        render(bomb, scope(), where="t")


@pytest.mark.parametrize(
    "escape",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ now.__globals__ }}",
        "{{ person['__class__'] }}",
        "{{ ''['__class__'] }}",
        "{{ person.update }}",
        "{{ lipsum }}",
        "{{ ('a' | map).gi_frame }}",
    ],
)
def test_python_internals_are_out_of_reach(escape: str) -> None:
    assert render(escape, scope(), where="t") is None


def test_a_failure_names_where_and_what() -> None:
    with pytest.raises(
        TemplateFailed, match=r"step 'load', tool\.command: expected a value, found ZeroDivisionError.*1 / 0"
    ) as failure:
        render("{{ 1 / 0 }}", scope(), where="step 'load', tool.command")
    assert failure.value.expression == "{{ 1 / 0 }}"
    with pytest.raises(TemplateFailed, match="does not parse"):
        render("{{ page ", scope(), where="t")


@pytest.mark.parametrize(
    "template",
    ["{{ start }}", "{{ start.x | default(1) }}", "{{ start.x is defined }}", "a {{ start.x }}", "{{ 1 in start }}"],
)
def test_a_payload_that_is_not_loaded_is_asked_for(template: str) -> None:
    with pytest.raises(NeedPayload):
        render(template, scope(results={"start": Ref(execution_id=1, ref_id=2)}), where="t")


def test_all_payloads_of_one_structure_are_asked_for_at_once() -> None:
    results = {name: Ref(execution_id=1, ref_id=number) for number, name in enumerate("ab", 1)}
    with pytest.raises(NeedPayload) as need:
        render({"x": "{{ a.one }}", "y": ["{{ b.two }}", "{{ a.one }}"]}, scope(results=results), where="t")
    assert need.value.needs == [(results["a"], "one"), (results["b"], "two")]


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (None, True),
        (True, True),
        (False, False),
        ("page == '3'", True),
        ("{{ 'False' }}", False),
        ("{{ nobody }}", False),
        ("{{ (page is defined) and zip }}", True),
        ("{{ page not in ['1'] }}", True),
        ("{% if page %}no{% endif %}", False),
        ("{{ [] }}", False),
    ],
)
def test_conditions_know_the_words_for_false(when: Any, expected: bool) -> None:
    assert holds(when, scope(), where="t") is expected


def test_code_is_rendered_as_text_and_its_comments_are_left_alone() -> None:
    code = "n = {{ page }}\n  # ({{ fetch }} -> {{ ctx.* }})\nd = {{ person }}\nz = {{ empty }}\n"
    lines = render_text(code, scope(), where="t").split("\n")
    assert lines[0] == "n = 3"
    assert lines[1] == "  # ({{ fetch }} -> {{ ctx.* }})"
    assert lines[2] == 'd = {"name": "O\'Hara", "items": [1, 2], "count": 9}'
    assert lines[3:] == ["z = None", ""]
    assert render_text("x = {}", scope(), where="t") == "x = {}"


def test_the_names_a_structure_mentions_are_its_roots() -> None:
    assert names({"{{ k }}": ["{{ a.b + c[d] }}", "{% for i in e %}{{ i }}{% endfor %}"]}) == frozenset("kacde")
    assert names("{{ broken ") == frozenset()
    assert is_template("a {{ b }}")
    assert not is_template("a { b }")


def test_a_method_is_read_only_where_it_is_called() -> None:
    names = scope(given={"a": 1})
    assert render("{{ given.items | default('none') }}", names, where="t") == "none"
    assert render("{{ given.keys() | list }} {{ given.get('a') }} {{ 'x'.upper() }}", names, where="t") == '["a"] 1 X'
    assert render("{% for k in given %}{{ loop.index }}{{ k }}{% endfor %}", names, where="t") == "1a"
