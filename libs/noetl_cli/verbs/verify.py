"""noetl verify: does everything that is kept follow from the log?"""

import asyncio
import os
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from noetl_cli.options import Output
from noetl_cli.output import Format, print_json, print_table, say
from noetl_cli.state_dir import StateDir

if TYPE_CHECKING:
    from noetl_common.verify.report import Finding, Report

EXIT_VIOLATED, EXIT_CANNOT_RUN = 1, 2
SAMPLE = 1_000
SHOWN_MAX = 100
PAYLOAD_BYTES_MAX = 64 * 1024 * 1024
COLUMNS = ("check", "shard", "execution_id", "event_id", "reference", "expected", "found", "also")


def verify(
    *,
    execution: Annotated[int | None, typer.Option(help="Only this execution, and nothing about shards.")] = None,
    sample: Annotated[str, typer.Option(help="How many payloads to read back: a number, or all.")] = str(SAMPLE),
    payload_bytes_max: Annotated[
        int, typer.Option(min=0, help="Larger payloads are not read back, but counted.")
    ] = PAYLOAD_BYTES_MAX,
    database_url: Annotated[
        str | None, typer.Option(help="Postgres; without it DATABASE_URL, then the local stack's.")
    ] = None,
    output: Output = Format.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False,
) -> None:
    """Recompute states, read models, counts, lineage and digests from the log and the result store, and compare.

    Reads one moment of the database and changes nothing; a system at work may be verified. Exit code 0: all holds;
    1: something does not; 2: it could not be verified.
    """
    # Imported here: what verifies brings psycopg along.
    import psycopg

    from noetl_common.errors import NoetlError

    try:
        report = asyncio.run(_verified(execution, _wanted(sample), payload_bytes_max, database_url))
    except NoetlError as error:
        say(f"error: {error}")
        raise typer.Exit(EXIT_CANNOT_RUN) from error
    except psycopg.Error as error:
        say(f"error: postgres: {str(error).strip()}")
        raise typer.Exit(EXIT_CANNOT_RUN) from error
    if as_json or output is Format.JSON:
        print_json(_document(report))
    else:
        _print(report)
    if not report.is_clean:
        raise typer.Exit(EXIT_VIOLATED)


def _wanted(sample: str) -> int | None:
    if sample == "all":
        return None
    if not sample.isdecimal():
        raise typer.BadParameter(f"--sample: expected a number or all, found {sample!r}")
    return int(sample)


async def _verified(execution: int | None, sample: int | None, bytes_max: int, database_url: str | None) -> "Report":
    from noetl_common.config import load
    from noetl_common.errors import ConfigError
    from noetl_common.store.config import Stores, open_store
    from noetl_common.verify.run import Asked, verify

    state = StateDir.chosen()
    running = state.running()
    url = database_url or os.environ.get("DATABASE_URL") or (running.database_url if running else "")
    if not url:
        raise ConfigError("postgres: expected DATABASE_URL, --database-url or a running local stack, found none")
    given = {name: value for name, value in os.environ.items() if name.startswith("NOETL_") and value}
    # Copies in NATS are not asked: what is verified is what lasts.
    settings = {
        "NOETL_STORE_DIR": str(state.path / "results"),
        **given,
        "DATABASE_URL": "-",
        "NOETL_KV_COPIES": "false",
    }
    store = open_store(load(Stores, settings), name="verify")
    try:
        return await verify(url, store, Asked(execution_id=execution, sample=sample, payload_bytes_max=bytes_max))
    finally:
        await store.close()


def _print(report: "Report") -> None:
    """Print what was found, then how often each check found something, and how much was looked at."""
    from noetl_common.verify.report import CHECKS

    if report.findings:
        shown = [_row(finding) for finding in report.findings[:SHOWN_MAX]]
        print_table(COLUMNS, shown, whole=("execution_id", "event_id"))
        if len(report.findings) > SHOWN_MAX:
            say(f"the first {SHOWN_MAX} findings; -o json prints {len(report.findings)}")
        print_table(
            ("check", "what_holds", "findings"),
            [{"check": name, "what_holds": CHECKS[name], "findings": n} for name, n in report.counts.items()],
        )
    looked = report.looked
    skipped = f" ({looked.payloads_skipped} too large)" if looked.payloads_skipped else ""
    number = len(report.violations)
    warnings = len(report.findings) - number
    say(
        f"{looked.events} events of {looked.executions} executions in {looked.shards} shards,"
        f" {looked.manifests} manifests, {looked.payloads} payloads{skipped} in {looked.seconds:.1f} s:"
        f" {number or 'no'} violation{'' if number == 1 else 's'}" + (f", {warnings} warnings" if warnings else "")
    )


def _row(finding: "Finding") -> dict[str, Any]:
    return {
        "check": finding.check if finding.severity == "error" else f"{finding.check} (warning)",
        "shard": "" if finding.shard_id < 0 else str(finding.shard_id),
        "execution_id": str(finding.execution_id or ""),
        "event_id": str(finding.event_id or ""),
        "reference": finding.reference,
        "expected": finding.expected,
        "found": finding.found,
        "also": ", ".join(finding.also),
    }


def _document(report: "Report") -> dict[str, Any]:
    """Return the report with ids as texts, which every reader of JSON keeps whole."""
    findings = [
        {
            **msgspec.to_builtins(finding),
            "execution_id": str(finding.execution_id or ""),
            "event_id": str(finding.event_id or ""),
        }
        for finding in report.findings
    ]
    return {
        "clean": report.is_clean,
        "violations": len(report.violations),
        "looked": msgspec.to_builtins(report.looked),
        "counts": report.counts,
        "findings": findings,
    }
