"""Steps of a document: the tool, the loop, what is set, and the ways on."""

from typing import Any, Literal

from noetl_common.core.checks import Report, check_condition, is_word, kind_of, meant, shown
from noetl_common.core.parse_loop import Loops, loop_texts
from noetl_common.core.parse_output import Outputs
from noetl_common.core.parse_run import priority_in
from noetl_common.core.parse_streams import carries_chunks
from noetl_common.core.parse_tool import Tools
from noetl_common.core.playbook import Admission, Arc, Loop, Step, Task
from noetl_common.core.reads import code_reads, condition_names, needed_names, texts_in
from noetl_common.core.templates import condition_source, names
from noetl_common.core.yaml_source import Path

ARCS_MAX = 100

STEP_KEYS = frozenset(
    ("step", "name", "desc", "description", "when", "tool", "loop", "set", "next", "input", "args", "spec", "output")
)
STEP_SPEC_KEYS = frozenset(("policy", "pool", "priority", "timeout", "next_mode", "on_error", "loop_mode", "fanout"))
NEXT_KEYS = frozenset(("spec", "arcs"))
ARC_KEYS = frozenset(("step", "when", "on", "set", "desc", "description"))
_MODES = frozenset(("exclusive", "inclusive"))


class Steps:
    """Reads the steps of one document."""

    def __init__(self, report: Report, tools: Tools, keychain: list[Any]) -> None:
        self._report = report
        self._tools = tools
        self._keychain = keychain
        self._loops = Loops(report)
        self._outputs = Outputs(report)

    def read(self, fields: dict[str, Any], path: Path, name: str) -> Step:
        """Return the step that the mapping describes."""
        self._check_keys(fields, path)
        spec = self._report.mapping(fields.get("spec"), (*path, "spec"), "spec")
        self._report.unknown_keys(spec, STEP_SPEC_KEYS, (*path, "spec"), what="the spec of a step")
        step_input = self._report.mapping(fields.get("input", fields.get("args")), (*path, "input"), "input")
        tasks, is_pipeline, tool_pool = self._tools.read(
            fields.get("tool"), (*path, "tool"), step=name, step_input=step_input
        )
        loop = self._loops.read(fields.get("loop"), (*path, "loop"), spec)
        arcs, mode = self._next(fields.get("next"), (*path, "next"), spec.get("next_mode", "exclusive"))
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
            priority=priority_in(spec, (*path, "spec"), self._report),
            admit=self._admit(spec, (*path, "spec", "policy")),
            output=self._outputs.read(fields, path, is_pipeline=is_pipeline),
            when=check_condition(fields.get("when"), (*path, "when"), self._report),
            names=self._names(tasks, loop, sets=sets, arcs=arcs),
        )

    def _check_keys(self, fields: dict[str, Any], path: Path) -> None:
        if "case" in fields:
            message = "expected the ways on under `next`, found `case`"
            self._report.error((*path, "case"), message, hint="write the cases as arcs of `next`")
        known = STEP_KEYS | {"case"}
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
            self._report.error(
                path, f"expected `then: {{allow: true}}` or false in a rule of admit, found {shown(allow)}"
            )
        return Admission(when=when, allow=allow is not False)

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
            message = f"expected exclusive or inclusive, found unknown mode {shown(mode)}"
            self._report.error((*path, "spec", "mode"), message, hint=meant(str(mode), _MODES))
            mode = "exclusive"
        arcs = self._report.listing(fields.get("arcs"), (*path, "arcs"), "arcs")
        if len(arcs) > ARCS_MAX:
            self._report.error((*path, "arcs"), f"expected at most {ARCS_MAX} arcs, found {len(arcs)}")
        found = (self._arc(arc, (*path, "arcs", index)) for index, arc in enumerate(arcs[:ARCS_MAX]))
        return tuple(arc for arc in found if arc is not None), mode

    def _arc(self, arc: Any, path: Path) -> Arc | None:
        if isinstance(arc, str):
            return Arc(step=arc)
        if not isinstance(arc, dict) or not isinstance(arc.get("step"), str):
            found = "no step" if isinstance(arc, dict) else kind_of(arc)
            self._report.error(path, f"expected an arc with `step`, the name of the next step, found {found}")
            return None
        self._report.unknown_keys(arc, ARC_KEYS, path, what="an arc")
        when = check_condition(arc.get("when"), (*path, "when"), self._report)
        return Arc(
            step=arc["step"],
            when=when,
            set=self._report.mapping(arc.get("set"), (*path, "set"), "set"),
            tests_event=bool(condition_names(when) & {"event", "fanin"}),
            on_partial=carries_chunks(arc, when, path, report=self._report),
        )

    def _names(
        self, tasks: tuple[Task, ...], loop: Loop | None, *, sets: dict[str, Any], arcs: tuple[Arc, ...]
    ) -> frozenset[str] | None:
        if any(_reads_context(task) for task in tasks):
            return None
        texts = [*texts_in(sets), *(text for arc in arcs for text in texts_in(arc.set))]
        conditions: list[str | bool | None] = [arc.when for arc in arcs]
        if loop is not None:
            texts += loop_texts(loop)
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
