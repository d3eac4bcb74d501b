"""Steps of a document: the tool, the loop, what is set, and the ways on."""

from typing import Any, Literal

from noetl_common.core.checks import Report, check_condition, is_word, kind_of, meant
from noetl_common.core.parse_tool import Tools
from noetl_common.core.playbook import UNSUPPORTED, Admission, Arc, Loop, Step, Task
from noetl_common.core.reads import code_reads, condition_names, needed_names, texts_in
from noetl_common.core.templates import condition_source, names
from noetl_common.core.yaml_source import Path

ARCS_MAX = 100

STEP_KEYS = frozenset(
    ("step", "name", "desc", "description", "tool", "loop", "set", "next", "input", "args", "spec", "output")
)
STEP_SPEC_KEYS = frozenset(("policy", "pool", "timeout", "next_mode", "on_error"))
LOOP_KEYS = frozenset(("in", "iterator", "spec", "mode", "max_in_flight", "cursor"))
LOOP_SPEC_KEYS = frozenset(("mode", "max_in_flight", "policy", "frame"))
NEXT_KEYS = frozenset(("spec", "arcs"))
ARC_KEYS = frozenset(("step", "when", "set", "desc", "description"))
_MODES = frozenset(("exclusive", "inclusive"))


class Steps:
    """Reads the steps of one document."""

    def __init__(self, report: Report, tools: Tools, keychain: list[Any]) -> None:
        self._report = report
        self._tools = tools
        self._keychain = keychain

    def read(self, fields: dict[str, Any], path: Path, name: str) -> Step:
        """Return the step that the mapping describes."""
        self._check_keys(fields, path)
        spec = self._report.mapping(fields.get("spec"), (*path, "spec"), "spec")
        self._report.unknown_keys(spec, STEP_SPEC_KEYS, (*path, "spec"), what="the spec of a step")
        step_input = self._report.mapping(fields.get("input", fields.get("args")), (*path, "input"), "input")
        tasks, is_pipeline, tool_pool = self._tools.read(
            fields.get("tool"), (*path, "tool"), step=name, step_input=step_input
        )
        loop, reason = self._loop(fields.get("loop"), (*path, "loop"))
        reason = reason or ("`when` on a step" if "when" in fields else "")
        arcs, mode = self._next(fields.get("next"), (*path, "next"), spec.get("next_mode", "exclusive"))
        if reason:
            self._report.warn(path, f"{reason} is not available in this release; the step fails when it runs")
            message = f"step {name!r}: {reason} is not available in this release"
            tasks, is_pipeline, loop = (Task(label=name, kind=UNSUPPORTED, config={"message": message}),), False, None
        sets = self._report.mapping(fields.get("set"), (*path, "set"), "set")
        pool = spec.get("pool") if isinstance(spec.get("pool"), str) else tool_pool
        return Step(
            name=name,
            tasks=tasks,
            is_pipeline=is_pipeline,
            loop=loop,
            set=sets,
            arcs=arcs,
            mode=mode,
            pool=pool or "default",
            admit=self._admit(spec, (*path, "spec", "policy")),
            names=self._names(tasks, loop, sets=sets, arcs=arcs),
        )

    def _check_keys(self, fields: dict[str, Any], path: Path) -> None:
        if "case" in fields:
            self._report.error((*path, "case"), "a step has no `case`", hint="write the cases as arcs of `next`")
        known = STEP_KEYS | {"case", "when"}
        for key in fields:
            if key not in known:
                hint = meant(key, known) or "fields of a tool belong under `tool`"
                self._report.warn((*path, key), f"a step has no key {key!r}; it is ignored", hint=hint)

    def _admit(self, spec: dict[str, Any], path: Path) -> tuple[Admission, ...]:
        policy = self._report.mapping(spec.get("policy"), path, "policy")
        place = (*path, "admit")
        admit = self._report.mapping(policy.get("admit"), place, "admit")
        self._report.unknown_keys(admit, ("mode", "rules"), place, what="admit")
        rules = self._report.listing(admit.get("rules"), (*place, "rules"), "rules")
        return tuple(self._admission(rule, (*place, "rules", index)) for index, rule in enumerate(rules))

    def _admission(self, rule: Any, path: Path) -> Admission:
        fields = self._report.mapping(rule, path, "a rule")
        self._report.unknown_keys(fields, ("when", "then", "else", "allow"), path, what="a rule of admit")
        when = None if "else" in fields else check_condition(fields.get("when"), (*path, "when"), self._report)
        then = fields.get("then", fields)
        other = fields.get("else")
        if isinstance(other, dict) and other:
            then = other.get("then", other)
        allow = then.get("allow") if isinstance(then, dict) else None
        if not isinstance(allow, bool):
            self._report.error(path, f"a rule of admit needs `then: {{allow: true}}` or false, found {allow!r}")
        return Admission(when=when, allow=allow is not False)

    def _loop(self, loop: Any, path: Path) -> tuple[Loop | None, str]:
        """Return the loop, or the reason why this release cannot run it."""
        if loop is None:
            return None, ""
        fields = self._report.mapping(loop, path, "loop")
        self._report.unknown_keys(fields, LOOP_KEYS, path, what="a loop")
        spec = self._report.mapping(fields.get("spec"), (*path, "spec"), "spec")
        self._report.unknown_keys(spec, LOOP_SPEC_KEYS, (*path, "spec"), what="the spec of a loop")
        mode = spec.get("mode", fields.get("mode", "sequential"))
        if mode in ("cursor", "fanout") or "cursor" in fields:
            return None, f"a loop of mode {mode if mode in ('cursor', 'fanout') else 'cursor'!r}"
        if mode not in ("sequential", "parallel"):
            hint = meant(str(mode), ("sequential", "parallel"))
            self._report.error((*path, "spec", "mode"), f"unknown loop mode {mode!r}", hint=hint)
            mode = "sequential"
        iterator = fields.get("iterator")
        if not isinstance(iterator, str) or not iterator.isidentifier():
            self._report.error(path, "a loop needs `iterator`, the name of its item")
            iterator = "item"
        source = fields.get("in")
        if source is None:
            self._report.error(path, "a loop needs `in`, what to loop over")
        elif isinstance(source, str) and "{" in source and "{{" not in source and "{%" not in source:
            self._report.error((*path, "in"), "`in` has a single brace", hint="write {{ ... }}")
        limit = spec.get("max_in_flight", fields.get("max_in_flight"))
        self._check_limit(limit, (*path, "spec", "max_in_flight"))
        return Loop(source=source, iterator=iterator, mode=mode, max_in_flight=limit), ""

    def _check_limit(self, limit: Any, path: Path) -> None:
        is_count = isinstance(limit, int) and not isinstance(limit, bool) and limit >= 1
        is_text = isinstance(limit, str) and ("{{" in limit or limit.isdigit())
        if limit is not None and not is_count and not is_text:
            self._report.error(path, f"max_in_flight must be a number from 1 or a template, found {limit!r}")

    def _next(
        self, ways: Any, path: Path, legacy_mode: Any
    ) -> tuple[tuple[Arc, ...], Literal["exclusive", "inclusive"]]:
        if isinstance(ways, str):
            ways = {"arcs": [{"step": ways}]}
        elif isinstance(ways, list):
            # A list of names meant all of them, a list of mappings the first that holds.
            all_names = all(isinstance(way, str) for way in ways)
            arcs = [{"step": way} if isinstance(way, str) else way for way in ways]
            ways = {"spec": {"mode": "inclusive" if all_names else legacy_mode}, "arcs": arcs}
        fields = self._report.mapping(ways, path, "next")
        if "step" in fields and "arcs" not in fields:
            fields = {"arcs": [fields]}
        self._report.unknown_keys(fields, NEXT_KEYS, path, what="next")
        spec = self._report.mapping(fields.get("spec"), (*path, "spec"), "spec")
        self._report.unknown_keys(spec, ("mode", "on_no_match", "policy"), (*path, "spec"), what="the spec of next")
        mode: Any = spec.get("mode", "exclusive")
        if not is_word(mode, _MODES):
            self._report.error((*path, "spec", "mode"), f"unknown mode {mode!r}", hint=meant(str(mode), _MODES))
            mode = "exclusive"
        arcs = self._report.listing(fields.get("arcs"), (*path, "arcs"), "arcs")
        if len(arcs) > ARCS_MAX:
            self._report.error((*path, "arcs"), f"{len(arcs)} arcs, allowed are {ARCS_MAX}")
        found = (self._arc(arc, (*path, "arcs", index)) for index, arc in enumerate(arcs[:ARCS_MAX]))
        return tuple(arc for arc in found if arc is not None), mode

    def _arc(self, arc: Any, path: Path) -> Arc | None:
        if isinstance(arc, str):
            return Arc(step=arc)
        if not isinstance(arc, dict) or not isinstance(arc.get("step"), str):
            found = "no step" if isinstance(arc, dict) else kind_of(arc)
            self._report.error(path, f"an arc needs `step`, the name of the next step; found {found}")
            return None
        self._report.unknown_keys(arc, ARC_KEYS, path, what="an arc")
        when = check_condition(arc.get("when"), (*path, "when"), self._report)
        return Arc(
            step=arc["step"],
            when=when,
            set=self._report.mapping(arc.get("set"), (*path, "set"), "set"),
            tests_event="event" in condition_names(when),
        )

    def _names(
        self, tasks: tuple[Task, ...], loop: Loop | None, *, sets: dict[str, Any], arcs: tuple[Arc, ...]
    ) -> frozenset[str] | None:
        if any(_reads_context(task) for task in tasks):
            return None
        texts = [*texts_in(sets), *(text for arc in arcs for text in texts_in(arc.set))]
        conditions: list[str | bool | None] = [arc.when for arc in arcs]
        if loop is not None:
            texts += [*texts_in(loop.source), *texts_in(loop.max_in_flight)]
        for task in tasks:
            texts += [*texts_in(task.config), *texts_in(task.input), *texts_in(task.set)]
            for rule in task.rules:
                texts += [*texts_in(rule.set), *texts_in(rule.attempts), *texts_in(rule.delay)]
                conditions.append(rule.when)
        texts += [condition_source(when) for when in conditions if isinstance(when, str)]
        if "keychain" in names(texts):
            texts += texts_in(self._keychain)
        return needed_names(texts)


def _reads_context(task: Task) -> bool:
    if task.kind != "python":
        return False
    code = task.config.get("code")
    # A script is read where the worker runs: what it mentions cannot be told from here.
    return "script" in task.config or (isinstance(code, str) and code_reads(code, "context"))
