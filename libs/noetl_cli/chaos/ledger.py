"""What the tools wrote down themselves, beside the runtime: a line for each effect."""

from collections import Counter, defaultdict
from pathlib import Path

Notes = dict[str, Counter[tuple[str, int]]]


def read_ledger(path: Path) -> Notes:
    """Return {run: how often each (step, number) was noted}. Lines are whole: each was one write at the end."""
    notes: Notes = defaultdict(Counter)
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            run, step, number = line.split()
            notes[run][step, int(number)] += 1
    return notes
