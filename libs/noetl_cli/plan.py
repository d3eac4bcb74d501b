"""The plan of a run that is not made: what it would start from, its steps in the order they can be reached."""

from collections.abc import Mapping
from typing import Any

import msgspec

from noetl_cli.graph.model import condition, tools_of
from noetl_cli.output import print_pairs, print_table, say
from noetl_common.core.lint import lint
from noetl_common.core.lint_flow import is_always, live_arcs
from noetl_common.core.parse import parse
from noetl_common.core.parse_streams import PARTIAL
from noetl_common.core.playbook import Arc, Loop, Playbook, Step, Task
from noetl_common.core.scope import Scope
from noetl_common.core.templates import is_template, names, render
from noetl_common.core.values import Value
from noetl_common.core.workload import effective_workload
from noetl_common.errors import TemplateFailed

# What only a run has: defaults that read these are shown as they are written.
_OF_A_RUN = frozenset(("execution_id", "catalog_id", "job", "env", "now", "path", "version", "parent_execution_id"))
_CREDENTIAL_FIELDS = ("auth", "credential")


def plan_of(text: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run of the document with this payload would do. Errors: PlaybookError."""
    playbook, warnings = parse(text)
    workload = _workload(playbook, given)
    scope = Scope(load=_no_payloads, workload=Value(workload), ctx={}, results={})
    order = in_reach(playbook)
    return {
        "path": playbook.path,
        "name": playbook.name,
        "entry_step": playbook.entry_step,
        "final_step": playbook.final_step or None,
        "timeout_s": playbook.timeout_s,
        "workload": workload,
        "steps": [_step(playbook.steps[name], scope, is_reached=True) for name in order]
        + [_step(step, scope, is_reached=False) for name, step in playbook.steps.items() if name not in order],
        "credentials": _credentials(playbook, scope),
        "keychain": [entry["name"] for entry in playbook.keychain],
        "playbooks": _children(playbook, scope),
        "warnings": [msgspec.to_builtins(finding) for finding in (*warnings, *lint(text, playbook))],
    }


def in_reach(playbook: Playbook) -> list[str]:
    """Return the steps that a run can reach: nearest to the entry first, then the final step and what follows it."""
    ways = {
        name: [arc.step for arc in live_arcs(step) if arc.step in playbook.steps]
        for name, step in playbook.steps.items()
    }
    starts = [name for name in (playbook.entry_step, playbook.final_step) if name]
    order: dict[str, None] = {}
    for start in starts:
        ring = [start]
        while ring:
            order.update(dict.fromkeys(ring))
            ring = list(dict.fromkeys(target for name in ring for target in ways[name] if target not in order))
    return list(order)


def show_plan(plan: dict[str, Any]) -> None:
    """Print a plan for a person: the workload, a table of steps, what is needed."""
    print_pairs({f"workload.{key}": value for key, value in plan["workload"].items()})
    rows = [
        {
            "step": step["step"] + ("" if step["reached"] else "  (never reached)"),
            "tools": step["tools_text"],
            "loop": step["loop_text"],
            "next": ", ".join(arc["text"] for arc in step["arcs"]),
        }
        for step in plan["steps"]
    ]
    print_table(("step", "tools", "loop", "next"), rows, whole=("step",))
    print_pairs({name: ", ".join(plan[name]) for name in ("credentials", "keychain", "playbooks")})
    say(f"{plan['path']}: {len(plan['steps'])} steps, nothing was run")


def plain_plan(plan: dict[str, Any]) -> dict[str, Any]:
    """Return a plan for programs: without the texts that are for people."""
    steps = [{key: value for key, value in step.items() if not key.endswith("_text")} for step in plan["steps"]]
    for step in steps:
        step["arcs"] = [{key: value for key, value in arc.items() if key != "text"} for arc in step["arcs"]]
    return {**plan, "steps": steps}


def _workload(playbook: Playbook, given: Mapping[str, Any]) -> dict[str, Any]:
    defaults = playbook.workload
    later = {key for key, value in defaults.items() if names(value) & _OF_A_RUN and key not in given}
    now = {key: value for key, value in defaults.items() if key not in later}
    resolved = effective_workload(now, given, execution_id=0)
    return {key: resolved.get(key, value) for key, value in {**defaults, **given}.items()}


def _step(step: Step, scope: Scope, *, is_reached: bool) -> dict[str, Any]:
    loop = _loop(step.loop, scope) if step.loop is not None else None
    return {
        "step": step.name,
        "reached": is_reached,
        **({"when": step.when} if step.when is not None else {}),
        "tools": [_tool(task, scope) for task in step.tasks],
        "tools_text": tools_of(step),
        "loop": loop,
        "loop_text": _loop_text(loop) if loop is not None else "",
        "mode": step.mode,
        "pool": step.pool,
        "arcs": [
            {
                "step": arc.step,
                "when": arc.when,
                **({"on": PARTIAL} if arc.on_partial else {}),
                "text": _arc_text(arc),
            }
            for arc in step.arcs
        ],
    }


def _arc_text(arc: Arc) -> str:
    text = arc.step if is_always(arc.when) else f"{arc.step} if {condition(arc.when)}"
    return f"{text} for each chunk" if arc.on_partial else text


def _tool(task: Task, scope: Scope) -> dict[str, Any]:
    found: dict[str, Any] = {"label": task.label, "kind": task.kind}
    alias = _alias(task, scope)
    if alias:
        found["credential"] = alias
    if task.rules:
        found["rules"] = [rule.do for rule in task.rules]
    return found


def _loop(loop: Loop, scope: Scope) -> dict[str, Any]:
    found = {
        "in": loop.source,
        "items": _count(_resolved(loop.source, scope)),
        "iterator": loop.iterator,
        "mode": loop.mode,
        "max_in_flight": _resolved(loop.max_in_flight, scope),
    }
    if loop.max_failures is not None:
        found["max_failures"] = _resolved(loop.max_failures, scope)
    if loop.max_shard_retries is not None:
        found["max_shard_retries"] = _resolved(loop.max_shard_retries, scope)
    if loop.claim is not None:
        found["claim"] = loop.claim.config.get("claim")
        frame = {"max_rows": loop.frame.max_rows, "row_concurrency": loop.frame.row_concurrency}
        found["frame"] = {
            **{key: _resolved(value, scope) for key, value in frame.items()},
            "process": loop.frame.process,
        }
    return found


def _loop_text(loop: dict[str, Any]) -> str:
    source = "what is claimed" if loop["mode"] == "cursor" else condition(str(loop["in"]))
    each = f"{loop['items']} items" if loop["items"] is not None else f"each {loop['iterator']} in {source}"
    limit = f" {condition(str(loop['max_in_flight']))}" if loop["max_in_flight"] is not None else ""
    return f"{each}, {loop['mode']}{limit}"


def _count(items: Any) -> int | None:
    """Return how many items a loop has, None when only a run can tell."""
    return len(items) if isinstance(items, list | dict) else None


def _credentials(playbook: Playbook, scope: Scope) -> list[str]:
    tasks = [task for step in playbook.steps.values() for task in (*step.tasks, *_claims(step))]
    found = [_alias(task, scope) for task in tasks]
    for entry in playbook.keychain:
        found += [str(_resolved(entry[key], scope)) for key in _CREDENTIAL_FIELDS if isinstance(entry.get(key), str)]
    return sorted({alias for alias in found if alias})


def _claims(step: Step) -> tuple[Task, ...]:
    return (step.loop.claim,) if step.loop is not None and step.loop.claim is not None else ()


def _alias(task: Task, scope: Scope) -> str:
    """Return the credential that a tool names; as it is written when only a run can tell."""
    for key in _CREDENTIAL_FIELDS:
        named = _resolved(task.config.get(key), scope)
        if isinstance(named, dict):
            named = _resolved(named.get("credential", named.get("name")), scope)
        if isinstance(named, str) and named:
            return named
    return ""


def _children(playbook: Playbook, scope: Scope) -> list[str]:
    tasks = [task for step in playbook.steps.values() for task in step.tasks if task.kind == "playbook"]
    return sorted({str(_resolved(task.config["path"], scope)) for task in tasks if task.config.get("path")})


def _resolved(value: Any, scope: Scope) -> Any:
    """Return a template's value when the workload alone makes it, else the template."""
    if not is_template(value):
        return value
    try:
        for name in names(value) - {"workload"}:
            scope.lookup(name)
        return render(value, scope, where="the plan")
    except (KeyError, TemplateFailed):
        return value


def _no_payloads(*_asked: Any) -> Any:
    raise AssertionError("a plan has no results")
