"""Loops of a document: over a collection, one after the other, at once or fanned out; or over what a cursor claims."""

from typing import Any

from noetl_common.core.checks import Report, is_word, meant, shown
from noetl_common.core.playbook import Frame, Loop, LoopMode, Task
from noetl_common.core.reads import texts_in
from noetl_common.core.scope import PROTECTED
from noetl_common.core.yaml_source import Path

LOOP_KEYS = frozenset(("in", "iterator", "spec", "mode", "max_in_flight", "cursor"))
LOOP_SPEC_KEYS = frozenset(("mode", "max_in_flight", "max_failures", "policy", "frame", "fanout"))
FANOUT_KEYS = frozenset(("max_shard_retries",))
FRAME_KEYS = frozenset(("max_rows", "row_concurrency", "process"))
# Other engines lease frames by these; here a claim is a transaction and its rows are commands with their own leases.
FRAME_KEYS_UNUSED = frozenset(("max_seconds", "max_bytes", "lease_seconds", "heartbeat_seconds"))
CURSOR_KEYS = frozenset(
    (
        *("kind", "claim", "params", "auth", "credential", "timeout", "timeout_seconds", "schema", "host", "port"),
        *("user", "password", "database", "db_host", "db_port", "db_user", "db_password", "db_name"),
    )
)
CURSOR_KINDS = frozenset(("postgres", "postgresql"))
TAKEN = frozenset((*PROTECTED, "ctx", "workload", "iter", "steps"))  # names that an iterator cannot have alone
MODES = ("sequential", "parallel", "fanout", "cursor")
PROCESS = ("row", "frame")
DIGITS_MAX = 20  # of a limit that is looked at here; what it comes to is checked when the loop begins


class Loops:
    """Reads the loops of one document."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def read(self, loop: Any, path: Path, step_spec: dict[str, Any]) -> Loop | None:
        """Return the loop that a step describes, None without one; `step_spec` may name its mode and retries too."""
        if loop is None:
            for key in sorted(step_spec.keys() & {"loop_mode", "fanout"}):
                self._report.warn((*path[:-1], "spec", key), f"{key!r} is ignored: the step has no loop")
            return None
        fields = self._report.mapping(loop, path, "loop")
        self._report.unknown_keys(fields, LOOP_KEYS, path, what="a loop")
        spec = self._report.mapping(fields.get("spec"), (*path, "spec"), "spec")
        self._report.unknown_keys(spec, LOOP_SPEC_KEYS, (*path, "spec"), what="the spec of a loop")
        mode = self._mode(fields, spec, step_spec, path)
        iterator = fields.get("iterator")
        if not isinstance(iterator, str) or not iterator.isidentifier():
            self._report.error(path, f"expected `iterator`, the name of the loop's item, found {shown(iterator)}")
            iterator = "item"
        if iterator in TAKEN:
            message = f"{iterator!r} alone is the run's own name, not the item; the item is iter.{iterator}"
            self._report.warn((*path, "iterator"), message, hint="give the iterator another name")
        for key in ("frame", "fanout"):
            if key in spec and mode != {"frame": "cursor", "fanout": "fanout"}[key]:
                self._report.warn((*path, "spec", key), f"{key!r} is ignored: the mode of the loop is {mode!r}")
        return Loop(
            source=None if mode == "cursor" else self._source(fields, path),
            iterator=iterator,
            mode=mode,
            max_in_flight=self._limit(spec, "max_in_flight", (*path, "spec"), fallback=fields.get("max_in_flight")),
            max_failures=self._limit(spec, "max_failures", (*path, "spec"), least=0),
            max_shard_retries=self._shard_retries(spec, step_spec, path) if mode == "fanout" else None,
            claim=self._claim(fields, path) if mode == "cursor" else None,
            frame=self._frame(spec, (*path, "spec", "frame")) if mode == "cursor" else Frame(),
        )

    def _mode(self, fields: dict[str, Any], spec: dict[str, Any], step_spec: dict[str, Any], path: Path) -> LoopMode:
        default = "cursor" if "cursor" in fields else "sequential"
        mode: Any = spec.get("mode", fields.get("mode", step_spec.get("loop_mode", default)))
        place = (*path, "spec", "mode")
        if not is_word(mode, MODES):
            hint = meant(str(mode), MODES)
            message = f"expected one of {', '.join(MODES)}, found unknown loop mode {shown(mode)}"
            self._report.error(place, message, hint=hint)
            return "cursor" if "cursor" in fields else "sequential"
        if mode == "cursor" and "cursor" not in fields:
            self._report.error(
                path, "expected `cursor`: {kind: postgres, auth, claim} for the mode 'cursor', found none"
            )
        elif mode != "cursor" and "cursor" in fields:
            message = f"expected mode 'cursor' for a loop with `cursor`, found {mode!r}"
            self._report.error(place, message, hint="leave the mode out, or the cursor")
            return "cursor"
        found: LoopMode = mode
        return found

    def _source(self, fields: dict[str, Any], path: Path) -> Any:
        source = fields.get("in")
        if source is None:
            self._report.error(path, "expected `in`, what to loop over, found none")
        elif isinstance(source, str) and "{" in source and "{{" not in source and "{%" not in source:
            message = f"expected a value or {{{{ ... }}}} in `in`, found a single brace in {source[:80]!r}"
            self._report.error((*path, "in"), message, hint="write {{ ... }}")
        return source

    def _shard_retries(self, spec: dict[str, Any], step_spec: dict[str, Any], path: Path) -> Any:
        place: Path = (*path, "spec", "fanout")
        written = spec.get("fanout")
        if written is None and "fanout" in step_spec:
            place, written = (*path[:-1], "spec", "fanout"), step_spec["fanout"]
        fanout = self._report.mapping(written, place, "fanout")
        self._report.unknown_keys(fanout, FANOUT_KEYS, place, what="fanout")
        return self._limit(fanout, "max_shard_retries", place, least=0)

    def _claim(self, fields: dict[str, Any], path: Path) -> Task:
        """Return the task that brings a cursor loop its next rows."""
        place = (*path, "cursor")
        if "in" in fields:
            self._report.warn((*path, "in"), "`in` is ignored: the loop goes over what its cursor claims")
        cursor = dict(self._report.mapping(fields.get("cursor"), place, "cursor"))
        self._report.unknown_keys(cursor, CURSOR_KEYS, place, what="a cursor")
        kind = cursor.get("kind", "postgres")
        if not isinstance(kind, str) or kind.strip().lower() not in CURSOR_KINDS:
            message = f"expected a cursor of kind 'postgres', the only one there is, found {shown(kind)}"
            self._report.error((*place, "kind"), message)
        cursor["kind"] = "postgres"
        claim = cursor.get("claim")
        if "cursor" in fields and (not isinstance(claim, str) or not claim.strip()):
            message = f"expected `claim`, the SQL that takes the next rows and returns them, found {shown(claim)}"
            self._report.error(place, message)
        if "timeout_seconds" in cursor:
            cursor.setdefault("timeout", cursor.pop("timeout_seconds"))
            cursor.pop("timeout_seconds", None)
        return Task(label="claim", kind="cursor", config=cursor)

    def _frame(self, spec: dict[str, Any], path: Path) -> Frame:
        frame = self._report.mapping(spec.get("frame"), path, "frame")
        for key in sorted(FRAME_KEYS_UNUSED & frame.keys()):
            self._report.warn((*path, key), f"{key!r} of a frame has no effect here")
        self._report.unknown_keys(frame, FRAME_KEYS | FRAME_KEYS_UNUSED, path, what="a frame")
        process: Any = frame.get("process", "row")
        if not is_word(process, PROCESS):
            message = f"expected one of {', '.join(PROCESS)}, found unknown way {shown(process)} to process a frame"
            self._report.error((*path, "process"), message, hint=meant(str(process), PROCESS))
            process = "row"
        return Frame(
            max_rows=self._limit(frame, "max_rows", path) or 1,
            row_concurrency=self._limit(frame, "row_concurrency", path) or 1,
            process=process,
        )

    def _limit(self, fields: dict[str, Any], key: str, path: Path, *, least: int = 1, fallback: Any = None) -> Any:
        limit = fields.get(key, fallback)
        is_count = isinstance(limit, int) and not isinstance(limit, bool) and limit >= least
        is_text = isinstance(limit, str) and ("{{" in limit or (limit.isdecimal() and int(limit[:DIGITS_MAX]) >= least))
        if limit is None or is_count or is_text:
            return limit
        self._report.error((*path, key), f"{key}: expected a number from {least} or a template, found {shown(limit)}")
        return None


def loop_texts(loop: Loop) -> list[str]:
    """Return every text of a loop that is rendered."""
    parts = (loop.source, loop.max_in_flight, loop.max_failures, loop.max_shard_retries)
    claim = loop.claim.config if loop.claim is not None else None
    return [
        text for part in (*parts, loop.frame.max_rows, loop.frame.row_concurrency, claim) for text in texts_in(part)
    ]
