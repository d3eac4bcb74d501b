"""docs/schema.sql is what the migrations make of an empty database."""

from pathlib import Path

from noetl_cli import schema_dump

ROOT = Path(__file__).parents[2]


def test_the_dumped_schema_is_what_the_migrations_make() -> None:
    written = (ROOT / schema_dump.PATH).read_text(encoding="utf-8")
    assert schema_dump.schema() == written, "docs/schema.sql is old: run `make schema`"


def test_what_differs_between_dumps_is_taken_out() -> None:
    before = "--\n-- PostgreSQL database dump\n--\n\n\\restrict aBc\n\nSET x = 1;\n\n\n"
    dump = f"{before}CREATE SCHEMA noetl;\n\n\n\\unrestrict aBc\n"
    assert schema_dump.normalised(dump) == f"{schema_dump.HEADING}\nCREATE SCHEMA noetl;\n"
