"""Tools of a document: single tools, pipelines, their policy rules, and references to the workbook."""

from typing import Any, get_args

import msgspec

from noetl_common.core.checks import Report, check_condition, is_word, kind_of, listed, meant, shown
from noetl_common.core.playbook import Rule, Task, Verb, version_number
from noetl_common.core.yaml_source import Path

RUNNABLE = frozenset(
    (
        *("python", "http", "postgres", "noop", "playbook", "shell", "script", "duckdb", "ducklake"),
        *("nats", "artifact", "result_fetch", "secrets", "mcp", "transfer"),
        *("container", "snowflake", "gcs"),
    )
)
# Kinds that playbooks in use name. They register here; a step that needs one fails when it runs.
KNOWN_ELSEWHERE = frozenset(
    (
        *("subscription", "agent", "snowflake_transfer", "iterator", "gateway"),
        *("provider", "rhai", "wasm", "playbooks"),
    )
)
TASKS_MAX = 100
VERBS = frozenset(get_args(Verb))
BACKOFFS = frozenset(("none", "fixed", "linear", "exponential"))

_COMMON_KEYS = frozenset(
    (
        *("kind", "name", "label", "desc", "description", "input", "args", "set", "spec", "auth", "credential"),
        *("timeout", "timeout_seconds", "retry", "output", "output_select", "pool", "assert", "libs", "env"),
    )
)
_KEYS = {
    "python": "code script cwd python iterator",
    "http": "method url endpoint headers params json data payload body form verify_ssl follow_redirects response_type",
    "postgres": "command query script params schema host port user password database db_host db_port db_user "
    "db_password db_name chunk_size once",
    "noop": "message result",
    "nats": "operation bucket key value object object_name subject payload data message headers msg_id stream consumer "
    "durable filter_subject batch batch_size max_messages timeout_ms max_wait_ms ack seq sequence",
    "artifact": "action result_ref ref uri step",
    "result_fetch": "action result_ref ref uri step prefer",
    "secrets": "provider secret secret_name key path map project mount",
    "mcp": "endpoint server url method tool arguments headers verify_ssl",
    "shell": "command cmd cmds shell cwd capture",
    "script": "code script cwd",
    "duckdb": "command commands query sql script params database db_path gcs_credential chunk_size tables",
    "ducklake": "command commands query sql script params catalog_connection catalog_name data_path chunk_size tables",
    "transfer": "source target mode mapping key chunk_size",
    "container": "image command resources namespace service_account service_account_name backoff_limit restart_policy "
    "node_selector tolerations volumes volume_mounts",
    "snowflake": "command commands query sql script params account user password private_key private_key_passphrase "
    "authenticator warehouse database schema role",
    "gcs": "operation bucket object key prefix uri source destination data content_type metadata encoding max_results",
    "playbook": "path payload return_step return_result result_step async catalog_id version task poll_interval "
    "parent_execution_id",
}
KEYS_OF_KIND = {kind: _COMMON_KEYS | frozenset(keys.split()) for kind, keys in _KEYS.items()}
_BACK = ("previous", "prev")
_ARGS_ARE_ARGV = frozenset(("container", "script", "shell"))
RULE_KEYS = frozenset(("when", "then", "else"))
THEN_KEYS = frozenset(("do", "attempts", "backoff", "delay", "to", "set"))


class Tools:
    """Reads the tools of one document."""

    def __init__(self, report: Report, workbook: dict[str, dict[str, Any]]) -> None:
        self._report = report
        self._workbook = workbook
        self._jumps: list[tuple[Path, str]] = []  # of the step that is being read

    def read(
        self, tool: Any, path: Path, *, step: str, step_input: dict[str, Any]
    ) -> tuple[tuple[Task, ...], bool, str]:
        """Return a step's tasks, whether they are a pipeline, and the pool that a tool asks for."""
        self._jumps = []
        if isinstance(tool, list):
            return self._pipeline(tool, path, step_input=step_input)
        if tool is None:
            self._report.warn(path, "the step has no tool; it does nothing (kind: noop)", hint="add tool: {kind: noop}")
            return (Task(label=step, kind="noop", input=step_input),), False, ""
        if not isinstance(tool, dict):
            self._report.error(path, f"expected a tool (a mapping) or a pipeline (a list), found {kind_of(tool)}")
            return (), False, ""
        task, pool = self._task(tool, path, label=step, step_input=step_input, is_item=False)
        task = self._resolved_jumps(task, [], path)
        self._check_jumps((task,))
        return (task,), False, pool

    def _pipeline(
        self, items: list[Any], path: Path, *, step_input: dict[str, Any]
    ) -> tuple[tuple[Task, ...], bool, str]:
        if not items:
            self._report.error(path, "expected a pipeline of at least one tool, found an empty list")
        if len(items) > TASKS_MAX:
            self._report.error(path, f"expected a pipeline of at most {TASKS_MAX} tools, found {len(items)}")
            items = items[:TASKS_MAX]
        tasks: list[Task] = []
        pools: list[str] = []
        for index, item in enumerate(items):
            found = self._item(item, (*path, index), index)
            if found is None:
                continue
            label, fields, place = found
            if any(task.label == label for task in tasks):
                self._report.error(place, f"expected each label once in a pipeline, found {label!r} again")
            task, pool = self._task(fields, place, label=label, step_input=step_input, is_item=True)
            tasks.append(self._resolved_jumps(task, tasks, place))
            pools.append(pool)
        self._check_jumps(tuple(tasks))
        return tuple(tasks), True, next((pool for pool in pools if pool), "")

    def _item(self, item: Any, path: Path, index: int) -> tuple[str, dict[str, Any], Path] | None:
        if not isinstance(item, dict):
            self._report.error(path, f"expected a pipeline item (a mapping), found {kind_of(item)}")
            return None
        if "kind" in item:
            label = item.get("name", item.get("label"))
            return (f"task_{index}" if label is None else str(label)), item, path
        if len(item) == 1:
            ((label, fields),) = item.items()
            if isinstance(fields, dict) and "kind" in fields:
                return label, fields, (*path, label)
        found = f"keys {', '.join(item)}"[:80] if item else "an empty mapping"
        message = (
            f"expected a pipeline item with a kind: {{name, kind, ...}} or {{label: {{kind, ...}}}}, found {found}"
        )
        self._report.error(path, message)
        return None

    def _task(
        self, fields: dict[str, Any], path: Path, *, label: str, step_input: dict[str, Any], is_item: bool
    ) -> tuple[Task, str]:
        fields, defaults = self._from_workbook(dict(fields), path, is_item=is_item)
        kind = self._kind(fields.pop("kind", None), path)
        spec = self._folded_spec(fields, path)
        given = self._input(fields, path, kind)
        rules = self._rules(spec, path)
        if "retry" in fields:
            rules = self._retry_rules(fields.pop("retry"), rules, (*path, "retry"))
        if kind in KEYS_OF_KIND:
            self._report.unknown_keys(fields, KEYS_OF_KIND[kind], path, what=f"a tool of kind {kind!r}")
        if kind == "playbook":
            self._check_version(fields.get("version"), (*path, "version"))
        for key in ("name", "label", "desc", "description", "assert"):
            fields.pop(key, None)
        if "timeout_seconds" in fields:
            fields.setdefault("timeout", fields.pop("timeout_seconds"))
            fields.pop("timeout_seconds", None)
        pool = fields.pop("pool") if isinstance(fields.get("pool"), str) else spec.get("pool", "")
        sets = self._report.mapping(fields.pop("set", None), (*path, "set"), "set")
        task = Task(
            label=label, kind=kind, config=fields, input={**defaults, **step_input, **given}, set=sets, rules=rules
        )
        return task, pool if isinstance(pool, str) else ""

    def _check_version(self, written: Any, path: Path) -> None:
        is_template = isinstance(written, str) and "{{" in written
        if written not in (None, "latest") and not is_template and version_number(written) is None:
            message = f"expected a version (a whole number from 1 on, latest, or a template), found {shown(written)}"
            self._report.error(path, message)

    def _kind(self, written: Any, path: Path) -> str:
        if not isinstance(written, str) or not written:
            message = f"expected a tool with a kind, found {shown(written)} for it"
            self._report.error((*path, "kind"), message, hint="add kind: python, http, postgres, noop or playbook")
            return "noop"
        kind = written.strip().lower()
        if kind in RUNNABLE:
            return kind
        if kind in KNOWN_ELSEWHERE:
            message = f"kind {kind!r} is not available in this release; the step fails when it runs"
            self._report.warn((*path, "kind"), message)
        elif kind != "workbook":
            known = RUNNABLE | KNOWN_ELSEWHERE | {"workbook"}
            message = f"expected one of {', '.join(sorted(RUNNABLE | {'workbook'}))}, found unknown tool kind {kind!r}"
            self._report.error((*path, "kind"), message, hint=meant(kind, known))
        return kind

    def _from_workbook(
        self, fields: dict[str, Any], path: Path, *, is_item: bool
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a tool's fields and the inputs it has by default: those of the workbook's action it names."""
        if fields.get("kind") != "workbook":
            return fields, {}
        # In a pipeline `name` is the item's label; the action may then be named by `action`, `task` or `workbook`.
        keys = ("action", "task", "workbook", "name") if is_item else ("name", "action", "task", "workbook")
        name = next((fields[key] for key in keys if isinstance(fields.get(key), str)), None)
        if name is None:
            self._report.error(path, "expected the name of an action of the workbook, found none")
            return {**fields, "kind": "noop"}, {}
        action = self._workbook.get(name)
        if action is None:
            hint = meant(name, self._workbook)
            message = f"expected an action of the workbook ({listed(self._workbook)}), found {name!r}"
            self._report.error(path, message, hint=hint)
            return {**fields, "kind": "noop"}, {}
        own = {key: value for key, value in fields.items() if key not in {*keys, "kind"}}
        merged = {key: value for key, value in action.items() if key not in ("input", "args", "name")} | own
        defaults = self._report.mapping(action.get("input", action.get("args")), path, "input of the action")
        return merged, defaults

    def _folded_spec(self, fields: dict[str, Any], path: Path) -> dict[str, Any]:
        """Return `spec`; its fields other than the policy become the tool's own where it has none of that name."""
        spec = self._report.mapping(fields.pop("spec", None), (*path, "spec"), "spec")
        for key, value in spec.items():
            if key not in ("policy", "pool"):
                fields.setdefault(key, value)
        if "policy" in fields and "policy" not in spec:
            spec = {**spec, "policy": fields["policy"]}
        fields.pop("policy", None)
        return spec

    def _input(self, fields: dict[str, Any], path: Path, kind: str) -> dict[str, Any]:
        given = self._report.mapping(fields.pop("input", None), (*path, "input"), "input")
        if kind not in _ARGS_ARE_ARGV and "args" in fields:
            given = {**self._report.mapping(fields.pop("args"), (*path, "args"), "args"), **given}
        if kind == "playbook" and isinstance(fields.get("payload"), dict):
            payload = fields.pop("payload")
            given = given or payload
        return given

    def _rules(self, spec: dict[str, Any], path: Path) -> tuple[Rule, ...]:
        place = (*path, "spec", "policy")
        policy = self._report.mapping(spec.get("policy"), place, "policy")
        rules = self._report.listing(policy.get("rules"), (*place, "rules"), "rules")
        found = (self._rule(rule, (*place, "rules", index)) for index, rule in enumerate(rules))
        return tuple(rule for rule in found if rule is not None)

    def _rule(self, rule: Any, path: Path) -> Rule | None:
        if not isinstance(rule, dict):
            self._report.error(path, f"expected a rule (a mapping), found {kind_of(rule)}")
            return None
        then = rule.get("then")
        if "else" in rule:
            # Three shapes are in use: else: {then: {...}}, else: {do: ...}, and else: with a sibling then:.
            other = rule["else"]
            if isinstance(other, dict):
                then = other.get("then", other) if other else then
        elif then is None:
            then = {key: value for key, value in rule.items() if key in THEN_KEYS}
        self._report.unknown_keys(rule, RULE_KEYS | THEN_KEYS, path, what="a rule")
        when = None if "else" in rule else check_condition(rule.get("when"), (*path, "when"), self._report)
        return self._then(self._report.mapping(then, (*path, "then"), "then"), when, (*path, "then"))

    def _then(self, then: dict[str, Any], when: str | bool | None, path: Path) -> Rule:
        self._report.unknown_keys(then, THEN_KEYS, path, what="then")
        do = then.get("do", "continue")
        if not is_word(do, VERBS):
            message = f"expected one of {listed(VERBS)}, found unknown verb {shown(do)}"
            self._report.error((*path, "do"), message, hint=meant(str(do), VERBS))
            do = "continue"
        # A delay says that the author wants to wait, so without a backoff it is a fixed one.
        backoff = then.get("backoff", "fixed" if "delay" in then else "none")
        if not is_word(backoff, BACKOFFS):
            message = f"expected one of {listed(BACKOFFS)}, found unknown backoff {shown(backoff)}"
            self._report.error((*path, "backoff"), message, hint=meant(str(backoff), BACKOFFS))
            backoff = "none"
        to = then.get("to")
        if do == "jump" and not isinstance(to, str):
            self._report.error(path, f"jump: expected `to`, the label of a task, found {shown(to)}")
        if do == "jump" and isinstance(to, str) and to not in _BACK:
            self._jumps.append(((*path, "to"), to))
        return Rule(
            when=when,
            do=do,
            attempts=self._number(then.get("attempts", 3), (*path, "attempts"), 3),
            backoff=backoff,
            delay=self._number(then.get("delay", 1.0), (*path, "delay"), 1.0),
            to=to if isinstance(to, str) else "",
            set=self._report.mapping(then.get("set"), (*path, "set"), "set"),
        )

    def _number(self, value: Any, path: Path, default: float) -> Any:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
            return value
        if isinstance(value, str) and ("{{" in value or _is_number(value)):
            return value
        self._report.error(path, f"expected a number from 0 or a template, found {shown(value)}")
        return default

    def _retry_rules(self, retry: Any, rules: tuple[Rule, ...], path: Path) -> tuple[Rule, ...]:
        if rules:
            self._report.warn(path, "retry is ignored: the tool has policy rules", hint="use do: retry in a rule")
            return rules
        if retry is None or retry is False:
            return rules
        fields = {"max_attempts": retry} if isinstance(retry, (int, str)) and retry is not True else retry
        if not isinstance(fields, dict):
            fields = {}
        self._report.warn(path, "retry is read as the rule: on error do retry", hint="spec.policy.rules says it better")
        when = "{{ output.status == 'error'" + _retry_test(fields) + " }}"
        then = {
            "do": "retry",
            "attempts": fields.get("max_attempts", fields.get("attempts", 3)),
            "delay": fields.get("delay", fields.get("initial_delay", 1.0)),
            "backoff": fields.get("backoff", "exponential" if "backoff_multiplier" in fields else "fixed"),
        }
        return (self._then(then, when, path),)

    def _resolved_jumps(self, task: Task, before: list[Task], path: Path) -> Task:
        if not any(rule.do == "jump" and rule.to in _BACK for rule in task.rules):
            return task
        if not before:
            self._report.error(path, "expected a task before it to jump to, found the first one of the pipeline")
            return task
        return msgspec.structs.replace(
            task,
            rules=tuple(
                msgspec.structs.replace(rule, to=before[-1].label) if rule.to in _BACK else rule for rule in task.rules
            ),
        )

    def _check_jumps(self, tasks: tuple[Task, ...]) -> None:
        labels = {task.label for task in tasks}
        for path, to in self._jumps:
            if to not in labels:
                self._report.error(
                    path, f"expected a jump to one of {listed(labels)}, found {to!r}", hint=meant(to, labels)
                )


def _retry_test(fields: dict[str, Any]) -> str:
    tests: list[str] = []
    kinds = fields.get("retry_on")
    if isinstance(kinds, list):
        tests.append(f"output.error.kind in {[str(kind) for kind in kinds]!r}")
    statuses = fields.get("retry_on_status")
    if isinstance(statuses, list):
        tests.append(f"output.http.status in {[status for status in statuses if isinstance(status, int)]!r}")
    return f" and ({' or '.join(tests)})" if tests else ""


def _is_number(text: str) -> bool:
    try:
        return float(text) >= 0
    except ValueError:
        return False
