"""The JSON Schema of the language, for editors: made from the tables of keys that the parser reads by."""

from collections.abc import Iterable
from typing import Any

import msgspec

from noetl_common.core import parse, parse_loop, parse_run, parse_step, parse_tool
from noetl_common.core.parse_streams import PARTIAL

PATH = "docs/playbook.schema.json"
_TEXT: dict[str, Any] = {"type": "string"}
_NAME: dict[str, Any] = {"type": "string", "minLength": 1}
_OBJECT: dict[str, Any] = {"type": ["object", "null"]}
_NUMBER: dict[str, Any] = {"type": ["number", "string"], "description": "A number, or a template that gives one."}
_WHEN: dict[str, Any] = {
    "type": ["string", "boolean", "null"],
    "description": "A condition; the braces may be left out. Without one it always holds.",
}
_SET: dict[str, Any] = {**_OBJECT, "description": "Variables to write: ctx.name for the run, iter.name for the item."}
_INPUT: dict[str, Any] = {**_OBJECT, "description": "Values by name, rendered for the tool."}
_SECONDS: dict[str, Any] = {"type": ["number", "string"], "description": 'Seconds, or a text such as "30s" or "5m".'}
_PRIORITY: dict[str, Any] = {
    "type": ["integer", "null"],
    "minimum": parse_run.PRIORITY_MIN,
    "maximum": parse_run.PRIORITY_MAX,
}
_RUNS: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": parse_run.CONCURRENT_RUNS_MAX}
_KEY: dict[str, Any] = {
    "type": ["string", "integer", "null"],
    "minLength": 1,
    "description": "A template over the workload: the runs of each key count apart.",
}

_MEANINGS = {
    "apiVersion": "The version of the language.",
    "workload": "What a run starts from; the caller's payload goes over it, key by key.",
    "workflow": "The steps. A run enters the one that executor.spec.entry_step names, else start, else the first.",
    "workbook": "Tools by name, for steps whose tool is of kind workbook.",
    "keychain": "Secrets by name, read as keychain.<name> in fields of tools.",
    "step": "The step's name; its result is read by it.",
    "desc": "For people; never rendered.",
    "tool": "One tool, or a list of them: a pipeline that runs on one worker.",
    "next": "The ways on from here. Without one the branch ends.",
    "iterator": "The name of the item inside the loop: iter.<name>.",
    "in": "What to loop over: a list, an object, a number, or a template of one.",
    "mode": "How: one after the other, at once, at once with retries of each item, or over what a cursor claims.",
    "max_in_flight": "How many items run at once; of a cursor, how many frames.",
    "max_failures": "How many items may fail and the step still succeeds.",
    "cursor": "SQL that takes the next rows and returns them, run until it returns none.",
    "claim": "A statement such as UPDATE ... RETURNING that takes at most __frame_max_rows rows.",
    "frame": "How much one claim takes, and how it is worked on.",
    "fanout": "What happens to an item that fails.",
    "max_shard_retries": "How often an item that failed runs again.",
    "loop_mode": "The mode of the loop, when the loop does not say it.",
    "max_rows": "How many rows a claim takes: __frame_max_rows in its templates.",
    "row_concurrency": "How many rows of a frame run at once.",
    "process": "What a body gets: one row, or the whole frame as a list.",
    "on": "call.partial: carry each chunk of the step's output here while the step still runs.",
    "auth": "The alias of a registered credential.",
    "kind": "Which tool.",
    "do": "What to do now.",
    "attempts": "How often the tool runs in all.",
    "delay": "Seconds to wait before it runs again.",
    "to": "The label of the task to go on with.",
    "final_step": "A step to run when nothing else is left to do.",
    "priority": "How urgent commands are: those of a higher number are always claimed first.",
    "concurrency": "How many runs of this playbook, or of it with the same key, go on at a time; further ones wait.",
    "no_next_is_error": "Fail the run when no arc of a step holds.",
}


def schema() -> dict[str, Any]:
    """Return the schema. What the parser only warns of, a key that it does not know, is a mistake here."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "NoETL playbook",
        **_closed(
            parse.ROOT_KEYS,
            required=("apiVersion", "kind", "metadata", "workflow"),
            apiVersion={"enum": list(parse.API_VERSIONS)},
            kind={"const": "Playbook"},
            metadata=_metadata(),
            workload=_OBJECT,
            workflow={"type": "array", "minItems": 1, "maxItems": parse.STEPS_MAX, "items": {"$ref": "#/$defs/step"}},
            workbook=_listing({"$ref": "#/$defs/action"}),
            keychain=_listing({"type": "object", "required": ["name"], "properties": {"name": _TEXT}}),
            executor={"type": ["object", "null"], "properties": {"spec": _executor_spec()}},
        ),
        "$defs": {
            "step": _step(),
            "loop": _loop(),
            "next": _next(),
            "arc": _arc(),
            "tool": _tool(),
            "policy": _policy(),
            "rule": _rule(),
            "then": _then(),
            "action": {
                "type": "object",
                "required": ["name", "tool"],
                "properties": {"name": _NAME, "tool": {"$ref": "#/$defs/tool"}},
            },
        },
    }


def page() -> str:
    """Return the text of docs/playbook.schema.json."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode() + "\n"


def _metadata() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": _NAME,
            "path": {**_NAME, "description": "The key in the catalog; other playbooks call it by this."},
        },
    }


def _executor_spec() -> dict[str, Any]:
    seconds = {"type": "number", "exclusiveMinimum": 0}
    return _closed(
        parse.EXECUTOR_SPEC_KEYS,
        entry_step=_TEXT,
        final_step=_TEXT,
        no_next_is_error={"type": "boolean"},
        timeout=seconds,
        timeout_s=seconds,
        timeout_seconds=seconds,
        priority=_PRIORITY,
        concurrency={"anyOf": [_RUNS, _closed(parse_run.CONCURRENCY_KEYS, required=("limit",), limit=_RUNS, key=_KEY)]},
    )


def _step() -> dict[str, Any]:
    tool = {"$ref": "#/$defs/tool"}
    item = {"anyOf": [tool, {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": tool}]}
    policy = {"type": ["object", "null"], "properties": {"admit": {"type": ["object", "null"]}}}
    step = _closed(
        parse_step.STEP_KEYS,
        step=_NAME,
        name=_NAME,
        when=_WHEN,
        tool={"anyOf": [tool, {"type": "array", "minItems": 1, "maxItems": parse_tool.TASKS_MAX, "items": item}]},
        loop={"$ref": "#/$defs/loop"},
        next={"$ref": "#/$defs/next"},
        set=_SET,
        input=_INPUT,
        args=_INPUT,
        spec=_closed(
            parse_step.STEP_SPEC_KEYS,
            policy=policy,
            pool=_TEXT,
            priority=_PRIORITY,
            timeout=_SECONDS,
            loop_mode={"enum": list(parse_loop.MODES)},
            fanout=_fanout(),
        ),
    )
    return {**step, "anyOf": [{"required": ["step"]}, {"required": ["name"]}]}


def _loop() -> dict[str, Any]:
    modes = {"enum": list(parse_loop.MODES)}
    spec = _closed(
        parse_loop.LOOP_SPEC_KEYS,
        mode=modes,
        max_in_flight=_limit(1),
        max_failures=_limit(0),
        frame=_frame(),
        fanout=_fanout(),
    )
    return _closed(
        parse_loop.LOOP_KEYS,
        required=("iterator",),
        iterator={"type": "string", "pattern": r"^[^\W\d]\w*$"},
        mode=modes,
        max_in_flight=_limit(1),
        cursor=_cursor(),
        spec=spec,
    )


def _limit(least: int) -> dict[str, Any]:
    return {"anyOf": [{"type": "integer", "minimum": least}, {"type": "string", "pattern": r"\{\{|^\d+$"}]}


def _fanout() -> dict[str, Any]:
    return _closed(parse_loop.FANOUT_KEYS, max_shard_retries=_limit(0))


def _frame() -> dict[str, Any]:
    keys = parse_loop.FRAME_KEYS | parse_loop.FRAME_KEYS_UNUSED
    process = {"enum": list(parse_loop.PROCESS)}
    return _closed(keys, max_rows=_limit(1), row_concurrency=_limit(1), process=process)


def _cursor() -> dict[str, Any]:
    kinds = {"enum": sorted(parse_loop.CURSOR_KINDS)}
    return _closed(
        parse_loop.CURSOR_KEYS, required=("claim",), kind=kinds, claim=_NAME, timeout=_SECONDS, timeout_seconds=_SECONDS
    )


def _next() -> dict[str, Any]:
    arcs = {"type": "array", "maxItems": parse_step.ARCS_MAX, "items": {"$ref": "#/$defs/arc"}}
    spec = {
        "type": ["object", "null"],
        "properties": {"mode": {"enum": ["exclusive", "inclusive"]}, "on_no_match": _TEXT, "policy": {}},
        "additionalProperties": False,
    }
    router = _closed(parse_step.NEXT_KEYS, arcs=arcs, spec=spec)
    return {"anyOf": [_NAME, arcs, router, {"$ref": "#/$defs/arc"}, {"type": "null"}]}


def _arc() -> dict[str, Any]:
    whole = _closed(parse_step.ARC_KEYS, required=("step",), step=_NAME, when=_WHEN, on={"const": PARTIAL}, set=_SET)
    return {"anyOf": [_NAME, whole]}


def _tool() -> dict[str, Any]:
    kinds = sorted(parse_tool.RUNNABLE | parse_tool.KNOWN_ELSEWHERE | {"workbook"})
    own = [
        {
            "if": {"properties": {"kind": {"const": kind}}},
            "then": {
                "properties": {key: {} for key in (*sorted(keys), "policy")},
                "additionalProperties": False,
            },
        }
        for kind, keys in sorted(parse_tool.KEYS_OF_KIND.items())
    ]
    return {
        "type": "object",
        "required": ["kind"],
        "properties": {
            "kind": {"enum": kinds, "description": _MEANINGS["kind"]},
            "auth": {"description": _MEANINGS["auth"]},
            "input": _INPUT,
            "set": _SET,
            "timeout": _SECONDS,
            "spec": {"type": ["object", "null"], "properties": {"policy": {"$ref": "#/$defs/policy"}}},
        },
        "allOf": own,
    }


def _policy() -> dict[str, Any]:
    return {"type": ["object", "null"], "properties": {"rules": _listing({"$ref": "#/$defs/rule"})}}


def _rule() -> dict[str, Any]:
    then = {"$ref": "#/$defs/then"}
    other = {"anyOf": [then, {"type": "object", "required": ["then"], "properties": {"then": then}}]}
    return _closed(parse_tool.RULE_KEYS | parse_tool.THEN_KEYS, when=_WHEN, then=then, **{"else": other, **_verbs()})


def _then() -> dict[str, Any]:
    jump = {"if": {"properties": {"do": {"const": "jump"}}, "required": ["do"]}, "then": {"required": ["to"]}}
    return {**_closed(parse_tool.THEN_KEYS, **_verbs()), **jump}


def _verbs() -> dict[str, Any]:
    return {
        "do": {"enum": sorted(parse_tool.VERBS)},
        "backoff": {"enum": sorted(parse_tool.BACKOFFS)},
        "attempts": _NUMBER,
        "delay": _NUMBER,
        "to": _TEXT,
        "set": _SET,
    }


def _closed(keys: Iterable[str], *, required: tuple[str, ...] = (), **known: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with these keys and no others; `known` says what some of them hold."""
    properties = {}
    for key in sorted(keys):
        meaning = {"description": _MEANINGS[key]} if key in _MEANINGS else {}
        properties[key] = {**meaning, **known.pop(key, {})}
    assert not known, f"the parser knows no {sorted(known)}"
    found: dict[str, Any] = {"type": "object" if required else ["object", "null"], "properties": properties}
    return {**found, "additionalProperties": False, **({"required": list(required)} if required else {})}


def _listing(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": ["array", "null"], "items": items}
