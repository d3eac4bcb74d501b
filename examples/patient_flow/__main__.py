"""The demo: serve the patients, run the playbook on a stack of its own (or that of `noetl up`), say what came out.

Exit code 0 when 5,000 records were fetched, stored and verified; 1 when not.
"""

import sys
import time
from pathlib import Path
from typing import Any

from examples.patient_flow.server import KINDS, PATIENTS, PatientApi
from noetl_cli.api import Api
from noetl_cli.output import print_pairs, print_table, say
from noetl_cli.progress import follow
from noetl_cli.run_view import COLUMNS, NUMBERS, RunView, error_text, rows_of
from noetl_cli.target import Tend, connected_or_started
from noetl_common import log
from noetl_common.errors import NoetlError

PLAYBOOK = Path(__file__).with_name("patient_flow.yaml")
RECORDS_EXPECTED = PATIENTS * len(KINDS)


def main() -> int:
    """Return the exit code."""
    log.configure(level="warning", fmt="text", role="demo", instance="demo")
    began = time.monotonic()
    try:
        with connected_or_started(None) as (api, tend), PatientApi() as patients:
            say(f"{PATIENTS} patients, {len(KINDS)} kinds of records at {patients.url}")
            view, counts = run(api, tend, patients.url)
    except NoetlError as exc:
        say(f"demo failed: {exc}")
        return 1
    verified = counts.get("verified_records", 0)
    print_summary(view, counts)
    print(f"{verified:,} verified records in {time.monotonic() - began:.1f} s, start and stop of the stack included")
    return 0 if view.status == "COMPLETED" and verified == RECORDS_EXPECTED else 1


def run(api: Api, tend: Tend, api_url: str) -> tuple[RunView, dict[str, Any]]:
    """Register and execute the playbook, follow it to its end; return what happened and the counts it returned."""
    registered = api.register(PLAYBOOK.read_text(encoding="utf-8"))
    execution_id = api.execute({"catalog_id": registered["catalog_id"]}, {"api_url": api_url})
    view = follow(api, execution_id, tend=tend)
    detail = api.execution(execution_id)
    if view.status != "COMPLETED":
        say(f"{view.status}: {error_text(detail.get('error') or view.error)}")
        return view, {}
    counts = api.resolve(detail["result"]["ref"])
    return view, counts if isinstance(counts, dict) else {}


def print_summary(view: RunView, counts: dict[str, Any]) -> None:
    """Print a line a step, then what the run returned."""
    print_table(COLUMNS, rows_of(view), right=NUMBERS)
    print()
    print_pairs({name.replace("_", " "): _shown(value) for name, value in counts.items()})
    print()


def _shown(value: Any) -> Any:
    """Return counts by kind as one line, anything else as it is."""
    return ", ".join(f"{kind} {count:,}" for kind, count in value.items()) if isinstance(value, dict) else value


if __name__ == "__main__":
    sys.exit(main())
