"""The corpus itself: large enough, each case different, and every case with all the parts that an error must have."""

from collections import Counter

import pytest

from tests.broken.cases import TABLES, cases, name_of

CASES_MIN = 300
# Beside what was expected and found: where it stands, and what names the part.
PARTS = {
    "documents": ("place",),
    "runs": (),
    "requests": ("status",),
    "commands": ("exit", "where"),
}
INPUTS = frozenset(("text", "change", "tool", "steps", "request", "command"))


def test_the_corpus_has_at_least_300_cases_and_none_twice() -> None:
    names = Counter(f"{table}: {name_of(case)}" for table in TABLES for case in cases(table))
    assert names.total() >= CASES_MIN
    assert not [name for name, count in names.items() if count > 1]
    given = Counter(
        repr({key: part for key, part in case.items() if key not in ("case", "expected", "found")})
        for table in TABLES
        for case in cases(table)
    )
    assert given.total() == names.total() and not [text for text, count in given.items() if count > 1]


@pytest.mark.parametrize("table", TABLES)
def test_every_case_says_all_that_its_error_must_say(table: str) -> None:
    lacking = []
    for case in cases(table):
        wanted = ("case", "found", *PARTS[table], *(() if "outside" in case else ("expected",)))
        lacks = [part for part in wanted if case.get(part) in (None, "")]
        if lacks or not INPUTS & case.keys():
            lacking.append(f"{name_of(case)}: {lacks}")
    assert not lacking, "\n".join(lacking)


def test_only_others_words_lack_what_was_expected() -> None:
    outside = [case for table in TABLES for case in cases(table) if "outside" in case]
    assert {case["outside"] for case in outside} <= {"python", "postgres", "duckdb", "network"}
    assert len(outside) < 20
