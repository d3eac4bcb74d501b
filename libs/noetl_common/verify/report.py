"""What a verification looks for, what it found, and which findings follow from others."""

from collections import Counter
from typing import Literal

import msgspec

FINDINGS_MAX = 10_000
ALSO_MAX = 20

# Every check, and what holds when it finds nothing. Those with a layer are of the log and what is made of it: of one
# run only the findings of its lowest layer stand for themselves, because the higher ones mostly follow from them.
CHECKS: dict[str, str] = {
    "log.sequence": "the inputs of a shard are numbered without a gap up to its head",
    "log.consequences": "consequences stand right behind their cause, in the same run",
    "log.cursors": "nothing is routed beyond the head of a shard, nothing projected beyond what is routed",
    "log.runs": "a run has a row, and its events begin with its start",
    "log.end": "a run ends once, and nothing is drawn from what comes later",
    "log.fold": "every routed event can be folded",
    "loops.done": "a loop is done once; a completed run has no open loop",
    "commands.issued": "a command was issued once and has its row",
    "commands.ended": "a command ends at most once, and exactly once in a run that is over",
    "commands.row": "a command's row says what the log says of its end",
    "timers.left": "a run that is over has no timer",
    "places.held": "a run has a place in its concurrency group from its admission to its end, within the limit",
    "state": "the router's state is the fold of the routed log",
    "projection": "the projection's state is the fold of the projected log",
    "read_model": "status, current step, counts, steps and result are what the projected log says",
    "references.row": "a result that an event names has its row, or stands in the manifest of its run",
    "references.agree": "an event and the row it names have the same digest and size",
    "lineage.parent": "the result that a result came from is there",
    "lineage.cycle": "no result comes from itself",
    "payloads.missing": "a payload is where its row says",
    "payloads.size": "a payload has the size that its row says",
    "payloads.digest": "a payload has the digest that its row says",
    "payloads.orphan": "a payload is named by a row, or its run may still name it",
    "manifests.row": "a folded run has its manifest, and no other run has one",
    "manifests.parts": "a manifest's parts are whole and in order",
    "manifests.counts": "a manifest counts what its parts hold, and what the log holds while it is there",
    "manifests.digest": "a manifest's trace digest is that of its events",
    "manifests.references": "a result that a folded event names stands in a manifest, or outlived it",
}
LAYERS: dict[str, int] = {
    "log.sequence": 0,
    "log.consequences": 0,
    "log.cursors": 0,
    "log.runs": 1,
    "log.end": 1,
    "log.fold": 2,
    "loops.done": 3,
    "commands.issued": 3,
    "commands.ended": 3,
    "commands.row": 3,
    "timers.left": 3,
    "places.held": 3,
    "state": 4,
    "projection": 5,
    "read_model": 6,
}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that does not hold: where, what was expected, what was found.

    Units: ids are 0, and shard_id -1, where they say nothing. `reference` is a result's uri or a payload's address.
    `also`: checks that failed too and need not be looked at before this is mended.
    """

    check: str
    expected: str
    found: str
    severity: Literal["error", "warning"] = "error"
    shard_id: int = -1
    execution_id: int = 0
    event_id: int = 0
    reference: str = ""
    also: tuple[str, ...] = ()


class Looked(msgspec.Struct, kw_only=True):
    """How much was looked at. `payloads_skipped` were larger than allowed."""

    shards: int = 0
    events: int = 0
    executions: int = 0
    payloads: int = 0
    payload_bytes: int = 0
    payloads_skipped: int = 0
    manifests: int = 0
    seconds: float = 0.0


class Report(msgspec.Struct, kw_only=True):
    """The outcome. `findings` are at most FINDINGS_MAX; `counts` {check: how many findings} counts them all."""

    looked: Looked
    findings: list[Finding]
    counts: dict[str, int]

    @property
    def violations(self) -> list[Finding]:
        """Return the findings that are no warnings."""
        return [finding for finding in self.findings if finding.severity == "error"]

    @property
    def is_clean(self) -> bool:
        """True when everything holds; warnings do not count."""
        return not self.violations


class Findings:
    """Collects findings; beyond FINDINGS_MAX they are only counted."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.beyond: Counter[str] = Counter()

    def add(self, *found: Finding) -> None:
        """Take findings."""
        for finding in found:
            if len(self.kept) < FINDINGS_MAX:
                self.kept.append(finding)
            else:
                self.beyond[finding.check] += 1

    def report(self, looked: Looked) -> Report:
        """Return the outcome, with what follows from something else put down to that."""
        findings = settled(self.kept)
        counts = Counter(finding.check for finding in findings) + self.beyond
        return Report(looked=looked, findings=findings, counts={name: counts[name] for name in CHECKS if counts[name]})


def settled(findings: list[Finding]) -> list[Finding]:
    """Return the findings that stand for themselves, each with the names of those that follow from it.

    Of one run the lowest layer stands. A hole in a shard's numbering cannot be put down to a run: it takes along all
    that does not hold of the runs of its shard.
    """
    holes = {one.shard_id: one for one in findings if one.check == "log.sequence"}
    lowest: dict[int, Finding] = {}
    for one in findings:
        if one.check in LAYERS and one.execution_id and one.shard_id not in holes:
            first = lowest.get(one.execution_id)
            if first is None or LAYERS[one.check] < LAYERS[first.check]:
                lowest[one.execution_id] = one
    stand: list[Finding] = []
    also: dict[int, list[str]] = {}
    for one in findings:
        first = holes.get(one.shard_id) if one.check in LAYERS else None
        first = first or lowest.get(one.execution_id)
        if first is None or one.check not in LAYERS or LAYERS[one.check] == LAYERS[first.check]:
            stand.append(one)
        else:
            name = f"{one.check} of {one.execution_id}" if first.check == "log.sequence" else one.check
            also.setdefault(id(first), []).append(name)
    return [
        msgspec.structs.replace(one, also=tuple(dict.fromkeys(also[id(one)]))[:ALSO_MAX]) if id(one) in also else one
        for one in stand
    ]
