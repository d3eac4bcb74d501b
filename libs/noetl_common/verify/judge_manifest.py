"""Judge one manifest by its parts. Pure."""

import hashlib
from collections import Counter
from datetime import datetime
from typing import Any, Literal

import msgspec

from noetl_common.core.events import PLAYBOOK_TERMINALS
from noetl_common.core.trace import is_traced
from noetl_common.verify.report import Finding

Row = dict[str, Any]
EVENT_TIME = 14  # of an event in a part; its id and type come first


class ManifestJudge:
    """Takes the parts of one manifest in order, then its trace; memory is that of one part."""

    def __init__(self, manifest: Row) -> None:
        self._manifest = manifest
        self._findings: list[Finding] = []
        self._parts = self._events = self._results = 0
        self._counts: Counter[str] = Counter()
        self._last_id = self._end_id = 0
        self._times: list[datetime] = []
        self._places: dict[tuple[str, str], int] = {}
        self._digest = hashlib.sha256()
        self._lines = 0

    def take_part(self, part: Row) -> None:
        """Take the next part: {kind, step, part_no, first, count, body}."""
        self._parts += 1
        name = f"part {part['kind']} {part['step']} {part['part_no']}".replace("  ", " ")
        try:
            lines = msgspec.json.decode(part["body"], type=list[list[Any]])
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            self._add("manifests.parts", f"{name}: a JSON array", str(error))
            return
        place = self._places.get((part["kind"], part["step"]), 0)
        self._places = {(part["kind"], part["step"]): part["part_no"] + 1}
        if part["part_no"] != place:
            self._add("manifests.parts", f"part {part['kind']} {part['step']} {place}", name)
        if len(lines) != part["count"]:
            self._add("manifests.parts", f"{name}: {part['count']} rows", f"{len(lines)}")
        if part["kind"] == "events":
            self._take_events(name, part["first"], lines)
        elif part["kind"] == "trace":
            self._results += len(lines)

    def _take_events(self, name: str, first: int, lines: list[list[Any]]) -> None:
        if lines and lines[0][0] != first:
            self._add("manifests.parts", f"{name}: event {first} first", f"{lines[0][0]}")
        self._events += len(lines)
        for line in lines:
            if line[0] <= self._last_id:
                self._add("manifests.parts", f"{name}: an event after {self._last_id}", f"{line[0]}")
            self._last_id = line[0]
            self._counts[line[1]] += 1
            if line[1] in PLAYBOOK_TERMINALS:
                self._end_id = line[0]
            time = datetime.fromisoformat(line[EVENT_TIME])
            self._times = [min([*self._times[:1], time]), max([*self._times[1:], time])]

    def take_traced(self, row: Row) -> None:
        """Take the next event in the order of the trace: {event_type, step, loop_epoch, iter_index, status}."""
        if not is_traced(row["event_type"], loop_epoch=row["loop_epoch"], iter_index=row["iter_index"]):
            return
        line = f"{row['event_type']}|{row['step']}|{row['iter_index']}|{row['status']}"
        self._digest.update((f"\n{line}" if self._lines else line).encode())
        self._lines += 1

    def finish(self) -> list[Finding]:
        """Return everything that does not hold; all parts and the trace were taken."""
        manifest = self._manifest
        expected = {
            "events": self._events,
            "results": self._results,
            "commands": self._counts["command.issued"],
            "counts": dict(self._counts),
            "parts": self._parts,
            "last_event_id": self._last_id,
            "terminal_event_id": self._end_id or None,
            "first_event_time": self._times[0] if self._times else None,
            "last_event_time": self._times[1] if self._times else None,
        }
        for name, value in expected.items():
            if manifest[name] != value:
                self._add("manifests.counts", f"{name} {value}", f"{name} {manifest[name]}")
        held = (manifest["log_events"], manifest["log_last_event_id"])
        if held[0] is not None and held != (self._events, self._last_id):
            expected_text = f"{held[0]} events up to {held[1]}, as in the log"
            # What came after the fold is folded again before the log goes.
            severity: Literal["error", "warning"] = "warning" if held[0] > self._events else "error"
            self._add("manifests.counts", expected_text, f"{self._events} up to {self._last_id}", severity=severity)
        if manifest["trace_digest"] != self._digest.hexdigest():
            self._add("manifests.digest", self._digest.hexdigest(), manifest["trace_digest"])
        return self._findings

    def _add(self, check: str, expected: str, found: str, *, severity: Literal["error", "warning"] = "error") -> None:
        self._findings.append(
            Finding(
                check=check,
                severity=severity,
                expected=expected,
                found=found,
                shard_id=self._manifest["shard_id"],
                execution_id=self._manifest["execution_id"],
            )
        )
