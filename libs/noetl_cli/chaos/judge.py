"""Compare what became of a load with what it must come to, by the ledger, the target table and the log's own proof."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from noetl_cli.chaos.drive import Started
from noetl_cli.chaos.ledger import Notes

Fate = tuple[str, Any]  # (status, result)
Effects = Mapping[str, Mapping[int, int]]  # {run: {n: how often}}


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that went wrong: something was lost, or something was done twice, or it came out otherwise."""

    kind: Literal["lost", "twice", "wrong"]
    run: str
    message: str


def judge(started: Sequence[Started], fates: Mapping[int, Fate], notes: Notes, *, effects: Effects) -> list[Fault]:
    """Return what is wrong with the runs that were acknowledged.

    Shapes: `fates` {execution id: (status, result)}; a run that never ended has the status it has now. A note that
    stands in the ledger more than once is no fault: a tool may run twice, and is recorded once.
    """
    found = list(_started_twice(started))
    for each in started:
        run = each.run
        say = f"{run.kind} {each.execution_id}"
        fate = fates.get(each.execution_id)
        if fate is None:
            found.append(Fault(kind="lost", run=run.name, message=f"{say}: acknowledged, and not there"))
            continue
        status, result = fate
        if status != run.status:
            kind: Literal["lost", "wrong"] = "lost" if status == "RUNNING" else "wrong"
            found.append(Fault(kind=kind, run=run.name, message=f"{say}: expected {run.status}, found {status}"))
        elif run.result is not None and result != run.result:
            found.append(Fault(kind="wrong", run=run.name, message=f"{say}: expected {run.result}, found {result}"))
        missing = run.notes - notes.get(run.name, Counter()).keys()
        if missing and status == "COMPLETED":
            found.append(Fault(kind="lost", run=run.name, message=f"{say}: the ledger lacks {sorted(missing)[:5]}"))
        if run.kind == "once":
            found += _effects_of(each, effects.get(run.name, {}))
    return found


def repeated(notes: Notes) -> int:
    """Return how many effects happened again: tools that ran twice, because a worker died before it could report."""
    return sum(times - 1 for run in notes.values() for times in run.values())


def _started_twice(started: Iterable[Started]) -> Iterable[Fault]:
    for execution_id, times in Counter(each.execution_id for each in started).items():
        if times > 1:
            yield Fault(kind="wrong", run="", message=f"{times} keys were answered with execution {execution_id}")


def _effects_of(each: Started, effects: Mapping[int, int]) -> Iterable[Fault]:
    say = f"once {each.execution_id}"
    if again := {n: times for n, times in effects.items() if times > 1}:
        yield Fault(kind="twice", run=each.run.name, message=f"{say}: rows written more than once: {again}")
    if missing := set(range(each.run.items)) - effects.keys():
        yield Fault(kind="lost", run=each.run.name, message=f"{say}: rows never written: {sorted(missing)[:5]}")
