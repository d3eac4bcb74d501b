"""Policy: what a task's rules make of its outcome."""

import math
from typing import Any, Literal, get_args

import msgspec

from noetl_common.core.outcome import Outcome
from noetl_common.core.playbook import Rule, Task, Verb
from noetl_common.core.results import output_view
from noetl_common.core.scope import Scope
from noetl_common.core.templates import holds, render
from noetl_common.errors import TemplateFailed

ATTEMPTS_MAX = 10_000
DELAY_MAX_S = 3600.0
VERBS: frozenset[str] = frozenset(get_args(Verb))
_PREFIXES = ("ctx.", "step.")


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now. Shapes: `sets` is rendered, its keys as written ("ctx.x", "iter.y", "z")."""

    do: Verb
    to: str = ""
    delay_s: float = 0.0
    sets: dict[str, Any] = {}


def judge(task: Task, outcome: Outcome, scope: Scope, *, attempt: int, where: str) -> Verdict:
    """Return the verdict of the first rule that holds; without one a success goes on and an error fails.

    `attempt` counts the executions of this task, from 1. A retry that has none left fails with the tool's error.
    Errors: TemplateFailed, NeedPayload.
    """
    seen = scope.extended(locals={"output": output_view(outcome), "_attempt": attempt, "_task": task.label})
    for number, rule in enumerate(task.rules, 1):
        place = f"{where}, rule {number}"
        if holds(rule.when, seen, where=f"{place}.when"):
            return _verdict(rule, outcome, seen, attempt=attempt, where=place)
    return Verdict(do="continue" if outcome.ok else "fail")


def target_of(name: str) -> tuple[Literal["ctx", "iter"], str]:
    """Return where a `set` key writes: of the execution or of the iteration, and under which name."""
    if name.startswith("iter.") and len(name) > len("iter."):
        return "iter", name.removeprefix("iter.")
    for prefix in _PREFIXES:
        if name.startswith(prefix) and len(name) > len(prefix):
            return "ctx", name.removeprefix(prefix)
    return "ctx", name


def _verdict(rule: Rule, outcome: Outcome, scope: Scope, *, attempt: int, where: str) -> Verdict:
    # All of a block's values are rendered before any is written, so none sees another.
    sets = {key: render(value, scope, where=f"{where}.set.{key}") for key, value in rule.set.items()}
    if rule.do != "retry":
        return Verdict(do=rule.do, to=rule.to, sets=sets)
    attempts = min(_number(rule.attempts, scope, where=f"{where}.attempts"), ATTEMPTS_MAX)
    if attempt >= attempts:
        return Verdict(do="fail", sets=sets)
    delay_s = _delay_s(rule, scope, attempt=attempt, where=f"{where}.delay")
    return Verdict(do="retry", delay_s=max(delay_s, _retry_after_s(outcome)), sets=sets)


def _delay_s(rule: Rule, scope: Scope, *, attempt: int, where: str) -> float:
    if rule.backoff == "none":
        return 0.0
    delay_s = max(_number(rule.delay, scope, where=where), 0.0)
    if rule.backoff == "linear":
        delay_s *= attempt
    elif rule.backoff == "exponential":
        delay_s *= 2.0 ** min(attempt - 1, 32)
    return min(delay_s, DELAY_MAX_S)


def _retry_after_s(outcome: Outcome) -> float:
    # The server named the time itself; what is no number was meant for another kind of reader.
    named = (outcome.error or {}).get("retry_after")
    try:
        seconds = float(named) if isinstance(named, (int, float, str)) else 0.0
    except ValueError:
        return 0.0
    return min(max(seconds, 0.0), DELAY_MAX_S) if math.isfinite(seconds) else 0.0


def _number(value: Any, scope: Scope, *, where: str) -> float:
    rendered = render(value, scope, where=where)
    try:
        number = float(rendered)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):
        raise TemplateFailed(f"expected a number, found {rendered!r}", expression=str(value), where=where)
    return number
