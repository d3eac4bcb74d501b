"""The lexer cuts scripts where Postgres would, and nowhere else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_common.errors import Invalid
from services.worker.tools.sql_statements import Binder, split, tokens

CASES: list[tuple[str, str, list[str]]] = [
    ("nothing", "", []),
    ("only blanks and semicolons", " ;\n;; ", []),
    ("only comments", "-- one;\n/* two; */ -- three", []),
    ("one without semicolon", "SELECT 1", ["SELECT 1"]),
    ("two", "SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"]),
    ("doubled quote", "SELECT 'it''s; here'; SELECT 2", ["SELECT 'it''s; here'", "SELECT 2"]),
    ("backslash is plain in a plain string", r"SELECT '\'; SELECT 2", [r"SELECT '\'", "SELECT 2"]),
    ("backslash escapes in an E string", r"SELECT E'\'; x'; SELECT 2", [r"SELECT E'\'; x'", "SELECT 2"]),
    ("an E string goes on over lines", "SELECT e'a'\n'\\'; b'; SELECT 2", ["SELECT e'a'\n'\\'; b'", "SELECT 2"]),
    ("a name that ends in e", "SELECT type'a\\'; SELECT 2", ["SELECT type'a\\'", "SELECT 2"]),
    ("quoted identifier", 'SELECT 1 AS "a;""b;"; SELECT 2', ['SELECT 1 AS "a;""b;"', "SELECT 2"]),
    ("dollar quotes", "DO $$ BEGIN; END $$; SELECT 2", ["DO $$ BEGIN; END $$", "SELECT 2"]),
    ("tagged, with another inside", "DO $a$ x $$;$$ $b$; $a$; SELECT 2", ["DO $a$ x $$;$$ $b$; $a$", "SELECT 2"]),
    ("a dollar inside a name", "SELECT a$b$; SELECT c$b$", ["SELECT a$b$", "SELECT c$b$"]),
    ("a numbered parameter is no tag", "SELECT $1; SELECT $2", ["SELECT $1", "SELECT $2"]),
    ("apostrophe in a comment", "SELECT 1 -- don't; stop\n; SELECT 2", ["SELECT 1 -- don't; stop", "SELECT 2"]),
    ("leading comment", "-- it's\n/* ; */ SELECT 1; SELECT 2", ["SELECT 1", "SELECT 2"]),
    ("nested comments", "SELECT /* a /* b; */ c; */ 1; SELECT 2", ["SELECT /* a /* b; */ c; */ 1", "SELECT 2"]),
    ("comment marks in a string", "SELECT '--', '/*'; SELECT 2", ["SELECT '--', '/*'", "SELECT 2"]),
    ("minus before a comment", "SELECT 1---x;\n; SELECT 2", ["SELECT 1---x;", "SELECT 2"]),
    (
        "rule with a list of actions",
        "CREATE RULE r AS ON INSERT TO t DO (DELETE FROM u; DELETE FROM v); SELECT 2",
        ["CREATE RULE r AS ON INSERT TO t DO (DELETE FROM u; DELETE FROM v)", "SELECT 2"],
    ),
    (
        "SQL body of a function",
        "CREATE OR REPLACE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 2 END; END;"
        " SELECT 2",
        [
            "CREATE OR REPLACE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 2 END; END",
            "SELECT 2",
        ],
    ),
    ("explicit transaction", "BEGIN; SELECT 1; END; SELECT 2", ["BEGIN", "SELECT 1", "END", "SELECT 2"]),
    ("unbalanced parenthesis", "SELECT 1); SELECT 2", ["SELECT 1)", "SELECT 2"]),
    ("letters beyond ASCII", "SELECT é; SELECT $é$;$é$", ["SELECT é", "SELECT $é$;$é$"]),
]


@pytest.mark.parametrize(("script", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_script_is_cut_at_top_level_semicolons(script: str, expected: list[str]) -> None:
    assert [statement.text for statement in split(script)] == expected


@pytest.mark.parametrize(
    ("script", "what", "line"),
    [
        ("SELECT 1;\nSELECT 'x", "string", 2),
        ("SELECT E'x\\'", "string", 1),
        ('SELECT\n\n"x', "quoted identifier", 3),
        ("SELECT /* /* */ 1", "/\\* comment", 1),
        ("DO $a$ x $b$", "dollar-quoted string", 1),
        ("DO $$", "dollar-quoted string", 1),
    ],
)
def test_what_never_ends_is_an_error_that_names_its_line(script: str, what: str, line: int) -> None:
    with pytest.raises(Invalid, match=f"{what} that begins in line {line}"):
        split(script)


@pytest.mark.parametrize(
    ("script", "alone"),
    [
        ("VACUUM ANALYZE t", True),
        ("create unique index concurrently i on t (a)", True),
        ("CREATE INDEX i ON t (a)", False),
        ("DROP INDEX CONCURRENTLY i", True),
        ("ALTER TABLE s.t DETACH PARTITION s.p CONCURRENTLY", True),
        ("REFRESH MATERIALIZED VIEW CONCURRENTLY v", False),
        ("CREATE DATABASE d", True),
        ("CREATE TABLE t (concurrently int)", False),
        ("REINDEX (CONCURRENTLY) INDEX i", True),
        ("BEGIN", True),
        ("START TRANSACTION", True),
        ("COMMIT", True),
        ("ROLLBACK", True),
        ("ROLLBACK TO SAVEPOINT a", False),
        ("SAVEPOINT a", False),
        ("CLUSTER", True),
        ("CLUSTER t", False),
        ("SELECT 'VACUUM'", False),
        ("(SELECT 1)", False),
    ],
)
def test_what_cannot_stand_in_a_transaction_is_known(script: str, alone: bool) -> None:
    (statement,) = split(script)
    assert statement.runs_alone is alone


@pytest.mark.parametrize(
    ("text", "params", "bound_text", "values"),
    [
        ("SELECT %s, %s", [1, "a"], "SELECT $1, $2", [1, "a"]),
        ("SELECT $2, $1, $2", ["a", "b"], "SELECT $1, $2, $1", ["b", "a"]),
        ("SELECT %(a)s, %(b)s, %(a)s", {"a": 1, "b": 2, "c": 3}, "SELECT $1, $2, $1", [1, 2]),
        ("SELECT '%s', %s, \"%s\" -- %s", [1], "SELECT '%s', $1, \"%s\" -- %s", [1]),
        ("SELECT 5 %% %s", [3], "SELECT 5 % $1", [3]),
        ("SELECT 5 % $1", [3], "SELECT 5 % $1", [3]),
    ],
)
def test_placeholders_become_numbers(text: str, params: object, bound_text: str, values: list[object]) -> None:
    result, bound = Binder(params).bind(text)  # type: ignore[arg-type]
    assert (result, [p.value for p in bound]) == (bound_text, values)


def test_parameters_are_counted_through_the_whole_script() -> None:
    binder = Binder(["a", "b", "c"])
    assert [p.value for p in binder.bind("SELECT %s")[1]] == ["a"]
    assert [p.value for p in binder.bind("SELECT %s, %s")[1]] == ["b", "c"]
    binder.check_all_used()


def test_a_json_cast_is_seen_behind_its_placeholder() -> None:
    _, bound = Binder([{}, [], [], []]).bind("SELECT %s::jsonb, %s :: JSON, %s::jsonb[], %s::text")
    assert [p.is_json for p in bound] == [True, True, False, False]


@pytest.mark.parametrize(
    ("text", "params", "message"),
    [
        ("SELECT %s, %s", [1], "expected at least 2"),
        ("SELECT %(a)s", {"b": 1}, "expected a value named 'a'"),
        ("SELECT %(a)s", [1], "expected a mapping"),
        ("SELECT %s", {"a": 1}, "expected a list"),
    ],
)
def test_a_placeholder_without_parameter_is_an_error(text: str, params: object, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        Binder(params).bind(text)  # type: ignore[arg-type]


def test_a_parameter_without_placeholder_is_an_error() -> None:
    binder = Binder([1, 2])
    binder.bind("SELECT %s")
    with pytest.raises(Invalid, match=r"expected 1, .* found 2"):
        binder.check_all_used()


FRAGMENTS = st.sampled_from(
    ["SELECT", " ", "\n", "1", "'a;''b'", "E'\\';'", '";"', "$$;$$", "$t$ ' $t$", "-- ';\n", "/* ; ' */", "(;)", "é"]
)


@given(st.lists(st.lists(FRAGMENTS, max_size=6).map(" ".join), max_size=5))
def test_statements_joined_by_semicolons_come_back_in_order(pieces: list[str]) -> None:
    together = split(" ;".join(f"x {piece}" for piece in pieces))
    apart = [statement.text for piece in pieces for statement in split(f"x {piece}")]
    assert [statement.text for statement in together] == apart


@given(st.text(st.sampled_from("ab'\"$-/*;()\\ \nE%s1é"), max_size=40))
def test_any_text_is_either_refused_or_covered_by_its_tokens(script: str) -> None:
    try:
        found = list(tokens(script))
    except Invalid:
        return
    assert "".join(token.text for token in found) == script
    for statement in split(script):
        assert script[statement.start :].startswith(statement.text)
