"""The corpus: cases read from the YAML tables of this folder, and what an error must say for each of them."""

import re
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
GOOD = (FOLDER / "good.yaml").read_text(encoding="utf-8")
TABLES = ("documents", "runs", "requests", "commands")
# Every error of ours says both; what a database, a server or an author's own code says stands behind them.
BOTH = re.compile(r"\bexpected\b.+\bfound\b", re.DOTALL)

Case = dict[str, Any]


def cases(table: str) -> list[Case]:
    """Return the cases of a table."""
    return list(yaml.safe_load((FOLDER / f"{table}.yaml").read_text(encoding="utf-8")))


def name_of(case: Case) -> str:
    """Return the case's name, for the test's id."""
    return str(case["case"])


def text_of(case: Case) -> str:
    """Return a case's document: its own, or the good one with its changes."""
    if "text" in case:
        return str(case["text"])
    text = GOOD
    for old, new in case["change"].items():
        assert text.count(old) == 1, (
            f"{case['case']}: expected {old!r} once in good.yaml, found it {text.count(old)} times"
        )
        text = text.replace(old, new)
    return text


def lacking(case: Case, message: str) -> list[str]:
    """Return which parts of what a case expects to be told are not in a message."""
    if "outside" in case:
        return [] if case["found"] in message else [case["found"]]
    wanted = (f"expected {case['expected']}", f"found {case['found']}")
    lacks = [part for part in wanted if part not in message]
    if not BOTH.search(message):
        lacks.append("expected ..., found ...")
    return lacks
