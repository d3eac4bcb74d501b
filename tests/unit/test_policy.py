"""Policy: what rules make of outcomes."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noetl_common.core.outcome import Outcome
from noetl_common.core.playbook import Rule, Task
from noetl_common.core.policy import VERBS, judge, target_of
from noetl_common.core.scope import Scope
from noetl_common.core.values import Ref, Value
from noetl_common.errors import TemplateFailed

# A slow machine is no failure, and nothing is left behind.
CALM = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])

OK = Outcome(data={"n": 1})
ERROR = Outcome(status="error", error={"kind": "timeout", "retryable": True, "message": "too slow"})


def never_loaded(ref: Ref, key: str | None) -> Any:
    raise KeyError(key)


SCOPE = Scope(load=never_loaded, workload=Value({"tries": "2"}), ctx={"total": Value(5)}, results={})


def verdict(*rules: Rule, outcome: Outcome = OK, attempt: int = 1) -> Any:
    task = Task(label="fetch", kind="http", rules=rules)
    return judge(task, outcome, SCOPE, attempt=attempt, where="step 'fetch'")


def test_without_a_matching_rule_success_goes_on_and_an_error_fails() -> None:
    assert verdict().do == "continue"
    assert verdict(outcome=ERROR).do == "fail"
    assert verdict(Rule(when="{{ output.status == 'never' }}", do="break"), outcome=ERROR).do == "fail"


def test_the_first_rule_that_holds_decides() -> None:
    rules = (
        Rule(when="{{ output.error.retryable }}", do="retry"),
        Rule(when="output.data.n == 1", do="jump", to="first"),
        Rule(do="fail"),
    )
    assert (verdict(*rules).do, verdict(*rules).to) == ("jump", "first")
    assert verdict(*rules, outcome=ERROR).do == "retry"


def test_attempts_count_all_executions_and_may_be_templates() -> None:
    rule = Rule(do="retry", attempts="{{ tries }}")
    assert verdict(rule, outcome=ERROR, attempt=1).do == "retry"
    assert verdict(rule, outcome=ERROR, attempt=2).do == "fail"
    assert verdict(rule, attempt=2).do == "fail"


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [("none", [0, 0, 0]), ("fixed", [2, 2, 2]), ("linear", [2, 4, 6]), ("exponential", [2, 4, 8])],
)
def test_delays_grow_as_the_backoff_says(backoff: Any, delays: list[float]) -> None:
    rule = Rule(do="retry", attempts=10, backoff=backoff, delay="2")
    assert [verdict(rule, attempt=attempt).delay_s for attempt in (1, 2, 3)] == delays


def test_a_delay_has_a_limit_and_waits_at_least_as_long_as_the_server_asks() -> None:
    rule = Rule(do="retry", attempts=1000, backoff="exponential", delay=1)
    assert verdict(rule, attempt=900).delay_s == 3600
    busy = Outcome(status="error", error={"retry_after": "7"})
    assert verdict(Rule(do="retry"), outcome=busy).delay_s == 7
    later = Outcome(status="error", error={"retry_after": "Wed, 21 Oct 2026 07:28:00 GMT"})
    assert verdict(Rule(do="retry"), outcome=later).delay_s == 0


def test_set_sees_what_was_before_and_the_output() -> None:
    rule = Rule(
        set={"ctx.total": "{{ ctx.total + output.data.n }}", "iter.copy": "{{ ctx.total }}", "a": "{{ _attempt }}"}
    )
    assert verdict(rule, attempt=3).sets == {"ctx.total": 6, "iter.copy": 5, "a": 3}


def test_a_retry_that_is_exhausted_still_sets() -> None:
    assert verdict(Rule(do="retry", attempts=1, set={"iter.x": 1}), outcome=ERROR).sets == {"iter.x": 1}


def test_a_wrong_number_names_the_rule() -> None:
    with pytest.raises(TemplateFailed, match=r"step 'fetch', rule 1\.attempts: expected a number, found 'many'"):
        verdict(Rule(do="retry", attempts="many"))


def test_targets_lose_their_prefix() -> None:
    assert [target_of(name) for name in ("ctx.x", "iter.x", "step.x", "x", "a.b", "ctx.")] == [
        ("ctx", "x"),
        ("iter", "x"),
        ("ctx", "x"),
        ("ctx", "x"),
        ("ctx", "a.b"),
        ("ctx", "ctx."),
    ]


TEXTS = st.sampled_from(
    [
        "{{ output.status == 'error' }}",
        "{{ output.data.n / 0 }}",
        "nobody.at.all",
        "{{ ",
        "{{ output }}",
        "no",
        "nan",
        "-1",
    ]
)
RULES = st.builds(
    Rule,
    when=st.none() | st.booleans() | TEXTS,
    do=st.sampled_from(sorted(VERBS)),
    attempts=st.integers() | TEXTS | st.none(),
    backoff=st.sampled_from(["none", "fixed", "linear", "exponential"]),
    delay=st.floats() | TEXTS,
    set=st.dictionaries(st.sampled_from(["ctx.a", "iter.b"]), TEXTS),
)


@CALM
@given(st.lists(RULES, max_size=4), st.sampled_from([OK, ERROR]), st.integers(1, 100))
def test_any_rules_give_a_verdict_or_fail_as_a_template(rules: list[Rule], outcome: Outcome, attempt: int) -> None:
    try:
        found = verdict(*rules, outcome=outcome, attempt=attempt)
    except TemplateFailed:
        return
    assert found.do in VERBS
    assert 0 <= found.delay_s <= 3600
