"""noetl chaos: does it lose nothing and do nothing twice, on this machine, under faults?"""

import secrets
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from noetl_cli.output import print_table, say

EXIT_BROKEN = 1
SHOWN_MAX = 20


def chaos(
    *,
    seconds: Annotated[float, typer.Option(min=1, help="How long faults are made.")] = 60.0,
    every: Annotated[float, typer.Option(min=0.2, help="Mean seconds between two faults.")] = 2.0,
    seed: Annotated[int | None, typer.Option(min=0, help="Draws the load and the faults; without it, any.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="How many runs are open at a time.")] = 8,
    keep: Annotated[Path | None, typer.Option(help="An empty folder for state and logs, which then stay.")] = None,
) -> None:
    """Run a mixed load on a stack of its own while its processes are killed, frozen and cut off; judge the outcome.

    Nothing that runs elsewhere is touched. The judgement is that of `noetl verify` with every payload, of a ledger
    that the tools write, and of a table in a database of the playbooks. Exit code 0: nothing lost, nothing twice.
    The last line is the report as JSON.
    """
    # Imported here: what makes the faults brings psycopg and the stores along.
    from noetl_cli.chaos.run import Options, chaos

    options = Options(
        seed=secrets.randbelow(1_000_000) if seed is None else seed, seconds=seconds, every_s=every, open_max=runs
    )
    say(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="noetl-chaos-") as folder:
        report = chaos(keep or Path(folder), options, say=say)
    for fault in report.wrong[:SHOWN_MAX]:
        say(f"{fault.kind}: {fault.message}")
    if report.findings:
        rows = [msgspec.to_builtins(finding) for finding in report.findings[:SHOWN_MAX]]
        print_table(("check", "execution_id", "event_id", "reference", "expected", "found"), rows)
    verdict = "nothing lost, nothing twice" if report.is_clean else "NOT as promised"
    say(f"{report.runs} runs, {report.events} events, {report.kills} kills, {report.pauses} pauses: {verdict}")
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    if not report.is_clean:
        raise typer.Exit(EXIT_BROKEN)
