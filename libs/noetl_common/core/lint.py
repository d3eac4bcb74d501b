"""Lint: what is allowed in a playbook and yet rarely meant, such as a name that nothing has."""

from collections.abc import Collection, Iterator
from typing import Any

import msgspec
from jinja2 import TemplateError, nodes

from noetl_common.core.checks import Report, is_word, meant
from noetl_common.core.commands import CHUNK
from noetl_common.core.lint_flow import check_flow
from noetl_common.core.playbook import Finding, Playbook, Step, Task
from noetl_common.core.policy import target_of
from noetl_common.core.reads import needed_names, texts_in
from noetl_common.core.templates import SANDBOX, condition_source, is_template, mask_comments, names
from noetl_common.core.yaml_source import PROBLEMS_MAX, Path, Source, read

_ALWAYS = frozenset(
    (
        *("ctx", "workload", "steps", "execution_id", "catalog_id", "job", "path", "version", "env", "now"),
        *("parent_execution_id", "result"),
    )
)
_AFTERWARDS = frozenset(("output", "event", "error"))  # when a step or a task has ended
_AFTER_LOOPS = frozenset(("fanin",))
_IN_TASKS = frozenset(("output", "_prev", "_task", "_attempt", "keychain"))
_IN_LOOPS = frozenset(("iter", "_index", "_total", "_first", "_last", "loop_index"))
_IN_CLAIMS = frozenset(("__frame_max_rows", "keychain"))
_IN_WORKLOAD = frozenset(("payload", "input"))
_BODY = frozenset(("tool", "input", "args"))
_UNRENDERED = frozenset(("desc", "description", "metadata", "assert"))
_SQL_FIELDS = frozenset(("command", "commands", "query", "sql"))
_SQL_KINDS = frozenset(("postgres", "duckdb", "ducklake", "snowflake"))
_SAFE_IN_SQL = frozenset(("sqlstr", "sqljson", "int", "float", "length"))


def lint(text: str, playbook: Playbook) -> list[Finding]:
    """Return the warnings about a document that parses; `playbook` is what it parsed to."""
    source = read(text)
    report = _LocatedReport(source, text)
    _Names(source, playbook, report).check()
    check_flow(source.value, playbook, report)
    _check_sql(source.value, report)
    _check_workload(source.value, playbook, report)
    kept = [finding for finding in report.findings if finding.severity == "warning"]
    return sorted(kept, key=lambda finding: (finding.line, finding.column))


class _LocatedReport(Report):
    """A report that can point at a line inside a text of several lines."""

    def __init__(self, source: Source, text: str) -> None:
        super().__init__(source)
        self._lines = text.splitlines()

    def warn_in(self, path: Path, line: int, message: str, *, hint: str = "") -> None:
        """Add a warning about line `line`, counted from 1, of the text at `path`."""
        self.warn(path, message, hint=hint)
        if not self.findings or self.findings[-1].message != message:
            return
        first = self.findings[-1].line
        head = self._lines[first - 1].split(" #")[0].rstrip() if first <= len(self._lines) else ""
        is_block = head.rstrip("+-0123456789").endswith(("|", ">"))
        if is_block or line > 1:
            # A block's first line is the one below its key; what column it had is not kept.
            moved = first + line - (0 if is_block else 1)
            self.findings[-1] = msgspec.structs.replace(self.findings[-1], line=moved, column=1)


class _Names:
    """Finds the names in templates that nothing has where they stand."""

    def __init__(self, source: Source, playbook: Playbook, report: _LocatedReport) -> None:
        self._document = source.value
        self._playbook = playbook
        self._report = report
        self._said: set[tuple[str, str]] = set()
        self._set = frozenset(_written(self._document))
        self._entries = frozenset(str(entry["name"]) for entry in playbook.keychain)
        self._loops = {name: loop for name, loop in map(_loop_of, self._document["workflow"]) if loop}
        self._loops |= {arc.step: CHUNK for step in playbook.steps.values() for arc in step.arcs if arc.on_partial}
        self._iterators = {iterator: name for name, iterator in self._loops.items()}
        self._labels = {
            task.label: step.name for step in playbook.steps.values() if step.is_pipeline for task in step.tasks
        }
        self._everywhere = frozenset((*playbook.steps, *playbook.workload, *self._set)) | _ALWAYS

    def check(self) -> None:
        """Look at every template of the workload and of the steps."""
        for path, text in _texts(self._document.get("workload"), ("workload",)):
            self._check_text(text, path, "workload", known=self._everywhere | _IN_WORKLOAD, iterated=None)
        for index, fields in enumerate(self._document["workflow"]):
            step = self._playbook.steps[fields.get("step", fields.get("name"))]
            for path, text in _texts(fields, ("workflow", index)):
                known, iterated = self._known(step, path)
                self._check_text(text, path, step.name, known=known, iterated=iterated)

    def _known(self, step: Step, path: Path) -> tuple[frozenset[str], frozenset[str] | None]:
        """Return the names that a field of a step sees, and the keys of `iter` there, None without a loop."""
        field = str(path[2])
        if field == "when":
            return self._everywhere, None
        if field == "loop" and "cursor" in path:
            return self._everywhere | _IN_CLAIMS, None
        if field not in _BODY:
            more = _AFTER_LOOPS if step.name in self._loops else frozenset()
            if any(arc.on_partial for arc in step.arcs):
                more |= {CHUNK}
            return self._everywhere | _AFTERWARDS | more, None
        inputs = frozenset(key for task in step.tasks for key in task.input)
        known = self._everywhere | _IN_TASKS | inputs | {task.label for task in step.tasks}
        kept = frozenset(target_of(key)[1] for task in step.tasks for key in _keys_set(task) if key.startswith("iter."))
        if step.name not in self._loops:
            return known | ({"iter"} if kept else frozenset()), kept or None
        iterated = kept | {self._loops[step.name], "_index", "_total"}
        return known | _IN_LOOPS | iterated, iterated

    def _check_text(
        self, text: str, path: Path, step: str, *, known: frozenset[str], iterated: frozenset[str] | None
    ) -> None:
        tree = _tree(text)
        if tree is None:
            return
        guarded = _guarded(tree)
        mentioned = names(text)
        lines = {node.name: node.lineno for node in tree.find_all(nodes.Name)}
        for name in sorted(mentioned - known - guarded):
            if (step, name) not in self._said and len(self._report.findings) < PROBLEMS_MAX:
                self._said.add((step, name))
                message, hint = self._unknown(name, known)
                self._report.warn_in(path, lines.get(name, 1), message, hint=hint)
        self._check_keys(tree, path, step, iterated=iterated)

    def _unknown(self, name: str, known: Collection[str]) -> tuple[str, str]:
        if name in self._iterators or name in _IN_LOOPS:
            owner = self._iterators.get(name)
            what = f"the item of the loop of step {owner!r}" if owner else "known in the body of a loop only"
            return f"{name!r} is {what}; it is undefined here", "a loop is left with its results: <step>.results"
        if name in _AFTER_LOOPS:
            return f"{name!r} is known in the arcs of a loop only; it is undefined here", "read <step>.stats instead"
        if name in _IN_CLAIMS - {"keychain"}:
            return f"{name!r} is known in the claim of a cursor only; it is undefined here", ""
        if name == "keychain":
            return "'keychain' is undefined here", "secrets are read in the fields of tools only"
        if name in self._labels:
            step = self._labels[name]
            return f"{name!r} is a task of step {step!r}; it is undefined here", f"from other steps it is {step}.{name}"
        message = (
            f"{name!r} is no step, workload key, variable, input or label; it is undefined unless a payload has it"
        )
        return message, meant(name, known) or "declare it under workload, or use | default(...)"

    def _check_keys(self, tree: nodes.Template, path: Path, step: str, *, iterated: frozenset[str] | None) -> None:
        """Look at what is read through a namespace: `ctx.x`, `workload.x`, `steps.x`, `iter.x`."""
        variables = self._everywhere | self._set
        keys: dict[str, Collection[str]] = {
            "ctx": variables,
            "workload": self._playbook.workload,
            "steps": self._playbook.steps,
            "keychain": self._entries,
        }
        if iterated is not None:
            keys["iter"] = iterated
        guarded = _guarded_nodes(tree)
        for access in tree.find_all(nodes.Getattr):
            root = access.node
            if not isinstance(root, nodes.Name) or root.name not in keys or id(access) in guarded:
                continue
            name = f"{root.name}.{access.attr}"
            if access.attr in keys[root.name] or access.attr in ("get", "keys", "values", "items"):
                continue
            if (step, name) not in self._said:
                self._said.add((step, name))
                hint = meant(access.attr, keys[root.name])
                self._report.warn_in(path, access.lineno, f"{name} is set nowhere; it is undefined", hint=hint)


def _check_sql(document: dict[str, Any], report: _LocatedReport) -> None:
    for path, fields in _mappings(document.get("workflow"), ("workflow",)):
        if not is_word(fields.get("kind"), _SQL_KINDS):
            continue
        for key in sorted(_SQL_FIELDS & fields.keys()):
            for text in texts_in(fields[key]):
                line = _spliced_line(text)
                if line:
                    message = "SQL is put together from a template: a quote in the value breaks it, or is obeyed"
                    report.warn_in((*path, key), line, message, hint="use params, or the filters sqlstr and sqljson")
                    break


def _spliced_line(text: str) -> int:
    """Return the line of the first expression that becomes part of a statement as it is, 0 for none."""
    tree = _tree(text)
    if tree is None:
        return 0
    outputs = [part for output in tree.find_all(nodes.Output) for part in output.nodes]
    parts = [part for part in outputs if not isinstance(part, nodes.TemplateData) or part.data.strip()]
    if len(parts) == 1 and len(tree.body) == 1:
        return 0  # the whole statement comes from elsewhere
    for part in parts:
        is_safe = isinstance(part, nodes.Filter) and part.name in _SAFE_IN_SQL
        if not is_safe and not isinstance(part, nodes.TemplateData):
            return int(part.lineno)
    return 0


def _check_workload(document: dict[str, Any], playbook: Playbook, report: Report) -> None:
    places = ("workflow", "workload", "workbook", "keychain")
    texts = [text for place in places for _path, text in _texts(document.get(place), (place,))]
    used = needed_names(texts)
    if used is None or any(step.names is None for step in playbook.steps.values()):
        return  # something reads the workload whole
    for key in playbook.workload:
        if key not in used:
            report.warn(("workload", key), f"nothing reads the workload key {key!r}")


def _written(document: Any) -> Iterator[str]:
    """Yield every variable that a `set` of the document writes, and the first part of a dotted one."""
    for _path, fields in _mappings(document, ()):
        sets = fields.get("set")
        for key in sets if isinstance(sets, dict) else ():
            kind, name = target_of(key)
            if kind == "ctx":
                yield name
                yield name.partition(".")[0]


def _loop_of(fields: dict[str, Any]) -> tuple[str, str]:
    loop = fields.get("loop")
    iterator = loop.get("iterator") if isinstance(loop, dict) else None
    return str(fields.get("step", fields.get("name"))), iterator if isinstance(iterator, str) else ""


def _keys_set(task: Task) -> Iterator[str]:
    yield from task.set
    for rule in task.rules:
        yield from rule.set


def _mappings(value: Any, path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    if isinstance(value, dict):
        yield path, value
        for key, item in value.items():
            yield from _mappings(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _mappings(item, (*path, index))


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield every text that is rendered, with its place; a condition with the braces it may lack."""
    if isinstance(value, str):
        if path[-1] == "when" and (len(path) == 3 or "next" in path or "rules" in path):
            yield path, condition_source(value)
        elif is_template(value):
            yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in _UNRENDERED:
                yield from _texts(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*path, index))


def _tree(text: str) -> nodes.Template | None:
    try:
        tree = SANDBOX.parse(mask_comments(text)[0]) if is_template(text) else None
        for _node in tree.find_all(nodes.Node) if tree is not None else ():
            pass  # what is too deep to be walked says so here, once
    except (TemplateError, RecursionError):
        return None
    return tree


def _guarded(tree: nodes.Template) -> frozenset[str]:
    """Return the names that the author knows may be missing: with a default, or tested for being defined."""
    inside = _guarded_nodes(tree)
    return frozenset(node.name for node in tree.find_all(nodes.Name) if id(node) in inside) | frozenset(
        test.node.name
        for test in tree.find_all(nodes.Test)
        if test.name in ("defined", "undefined") and isinstance(test.node, nodes.Name)
    )


def _guarded_nodes(tree: nodes.Template) -> set[int]:
    found: set[int] = set()
    guards = [guard for guard in tree.find_all(nodes.Filter) if guard.name in ("default", "d") and guard.node]
    tests = [test for test in tree.find_all(nodes.Test) if test.name in ("defined", "undefined")]
    for guard in (*guards, *tests):
        node: nodes.Node | None = guard.node
        while node is not None:
            found.add(id(node))
            node = getattr(node, "node", None)
    return found
