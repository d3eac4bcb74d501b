"""Parse: a playbook document, read, checked and turned into the records that everything else works with."""

from typing import Any

import msgspec

from noetl_common.core.checks import Report, check_templates, kind_of, meant, shown
from noetl_common.core.parse_run import concurrency_in, priority_in, timeout_s_in
from noetl_common.core.parse_step import Steps
from noetl_common.core.parse_streams import check_streams
from noetl_common.core.parse_tool import Tools
from noetl_common.core.playbook import Finding, Playbook, Step
from noetl_common.core.yaml_source import Path, read
from noetl_common.errors import PlaybookError

API_VERSIONS = ("noetl.io/v2", "noetl.io/v10")
STEPS_MAX = 1000
ROOT_KEYS = frozenset(("apiVersion", "kind", "metadata", "workload", "workflow", "keychain", "workbook", "executor"))
EXECUTOR_SPEC_KEYS = frozenset(
    (
        "entry_step",
        "final_step",
        "no_next_is_error",
        "policy",
        "timeout",
        "timeout_s",
        "timeout_seconds",
        "priority",
        "concurrency",
    )
)


def parse(text: str) -> tuple[Playbook, list[Finding]]:
    """Return the playbook and the warnings about it.

    Errors: PlaybookError with every problem found, warnings behind the errors.
    """
    source = read(text)
    report = Report(source)
    playbook = _playbook(source.value, report)
    errors = [finding for finding in report.findings if finding.severity == "error"]
    warnings = [finding for finding in report.findings if finding.severity == "warning"]
    if errors or playbook is None:
        raise PlaybookError([msgspec.to_builtins(finding) for finding in (*errors, *warnings)])
    return playbook, warnings


def _playbook(document: Any, report: Report) -> Playbook | None:
    if not isinstance(document, dict):
        report.error((), f"expected a playbook (a mapping), found {kind_of(document)}")
        return None
    _check_root(document, report)
    metadata = report.mapping(document.get("metadata"), ("metadata",), "metadata")
    name, path = _identity(metadata, report)
    keychain = report.listing(document.get("keychain"), ("keychain",), "keychain")
    steps = _steps(document, keychain, report)
    check_templates(document, report)
    _check_targets(document, steps, report)
    executor = report.mapping(document.get("executor"), ("executor",), "executor")
    spec = report.mapping(executor.get("spec"), ("executor", "spec"), "spec")
    place = ("executor", "spec")
    report.unknown_keys(spec, EXECUTOR_SPEC_KEYS, place, what="the spec of the executor")
    playbook = Playbook(
        path=path,
        name=name,
        steps=steps,
        entry_step=_named_step(spec, "entry_step", steps=steps, report=report) or _first_step(steps),
        workload=report.mapping(document.get("workload"), ("workload",), "workload"),
        keychain=tuple(entry for index, entry in enumerate(keychain) if _is_entry(entry, index, report)),
        final_step=_named_step(spec, "final_step", steps=steps, report=report),
        no_next_is_error=spec.get("no_next_is_error") is True,
        timeout_s=timeout_s_in(spec, place, report),
        priority=priority_in(spec, place, report) or 0,
        concurrency=concurrency_in(spec, place, report),
    )
    check_streams(playbook, _places(document), report)
    return playbook


def _check_root(document: dict[str, Any], report: Report) -> None:
    report.unknown_keys(document, ROOT_KEYS, (), what="a playbook")
    version = document.get("apiVersion")
    if version not in API_VERSIONS:
        report.error(
            ("apiVersion",), f"expected apiVersion {' or '.join(map(repr, API_VERSIONS))}, found {shown(version)}"
        )
    kind = document.get("kind")
    if kind != "Playbook":
        report.error(("kind",), f"expected kind 'Playbook', found {shown(kind)}", hint=meant(str(kind), ("Playbook",)))


def _identity(metadata: dict[str, Any], report: Report) -> tuple[str, str]:
    name, path = (metadata.get(key) for key in ("name", "path"))
    if not isinstance(name, str) or not name:
        report.error(("metadata", "name"), f"expected metadata.name, a text, found {shown(name)}")
        name = ""
    if path is None:
        report.warn(("metadata",), "metadata has no path; the name is taken")
        path = name
    if not isinstance(path, str) or (not path and name):
        report.error(("metadata", "path"), f"expected metadata.path, a text, found {shown(path)}")
        path = name
    return name, path


def _steps(document: dict[str, Any], keychain: list[Any], report: Report) -> dict[str, Step]:
    listed = report.listing(document.get("workflow"), ("workflow",), "workflow")
    if not listed:
        report.error(("workflow",), "expected a workflow of at least one step, found none")
    if len(listed) > STEPS_MAX:
        report.error(("workflow",), f"expected at most {STEPS_MAX} steps, found {len(listed)}")
    reader = Steps(report, Tools(report, _workbook(document, report)), keychain)
    steps: dict[str, Step] = {}
    for index, fields in enumerate(listed[:STEPS_MAX]):
        path = ("workflow", index)
        if not isinstance(fields, dict):
            report.error(path, f"expected a step (a mapping), found {kind_of(fields)}")
            continue
        name = fields.get("step", fields.get("name"))
        if not isinstance(name, str) or not name:
            report.error(path, f"expected `step`, the name of the step, found {shown(name)}")
            continue
        if name in steps:
            report.error((*path, "step"), f"expected each step once, found {name!r} again")
        step = reader.read(fields, path, name)
        steps.setdefault(name, step)
    return steps


def _places(document: dict[str, Any]) -> dict[str, Path]:
    """Return where each step stands; of two that share a name, the first."""
    places: dict[str, Path] = {}
    listed = document.get("workflow")
    for index, fields in enumerate(listed if isinstance(listed, list) else []):
        name = fields.get("step", fields.get("name")) if isinstance(fields, dict) else None
        if isinstance(name, str):
            places.setdefault(name, ("workflow", index))
    return places


def _workbook(document: dict[str, Any], report: Report) -> dict[str, dict[str, Any]]:
    """Return the tools of the workbook by name."""
    actions: dict[str, dict[str, Any]] = {}
    for index, item in enumerate(report.listing(document.get("workbook"), ("workbook",), "workbook")):
        path = ("workbook", index)
        fields = report.mapping(item, path, "an action of the workbook")
        name, tool = fields.get("name"), fields.get("tool")
        if not isinstance(name, str) or not isinstance(tool, dict):
            report.error(
                path, f"expected an action with a name and a tool, found name {shown(name)}, tool {kind_of(tool)}"
            )
        elif tool.get("kind") == "workbook":
            report.error(
                (*path, "tool"), "expected a tool of its own, found a reference to the workbook in the workbook"
            )
        elif name in actions:
            report.error(path, f"expected each action once in the workbook, found {name!r} again")
        else:
            actions[name] = tool
    return actions


def _check_targets(document: dict[str, Any], steps: dict[str, Step], report: Report) -> None:
    listed = document.get("workflow")
    for index, fields in enumerate(listed if isinstance(listed, list) else []):
        name = fields.get("step", fields.get("name")) if isinstance(fields, dict) else None
        step = steps.get(name) if isinstance(name, str) else None
        for number, arc in enumerate(step.arcs if step is not None else ()):
            path = ("workflow", index, "next", "arcs", number, "step")
            if arc.step in steps:
                continue
            if arc.step == "end":
                report.warn(path, "there is no step 'end'; the branch ends here")
            else:
                message = f"expected a step of the workflow, found unknown step {arc.step!r}"
                report.error(path, message, hint=meant(arc.step, steps))


def _named_step(spec: dict[str, Any], key: str, *, steps: dict[str, Step], report: Report) -> str:
    name = spec.get(key)
    if name is None:
        return ""
    if not isinstance(name, str) or name not in steps:
        message = f"{key}: expected a step of the workflow, found {shown(name)}"
        report.error(("executor", "spec", key), message, hint=meant(str(name), steps))
        return ""
    return name


def _first_step(steps: dict[str, Step]) -> str:
    return "start" if "start" in steps else next(iter(steps), "")


def _is_entry(entry: Any, index: int, report: Report) -> bool:
    is_entry = isinstance(entry, dict) and isinstance(entry.get("name"), str)
    if not is_entry:
        found = f"name {shown(entry.get('name'))}" if isinstance(entry, dict) else kind_of(entry)
        report.error(("keychain", index), f"expected an entry with a name, found {found}")
    return is_entry
