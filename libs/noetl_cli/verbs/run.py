"""noetl run: register, execute, watch, summarise."""

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import msgspec
import typer

from noetl_cli.documents import check_document, read_document, register_document
from noetl_cli.human import duration, size
from noetl_cli.options import Output, Server
from noetl_cli.output import Format, print_json, print_table, say, say_problem
from noetl_cli.payload import payload_of
from noetl_cli.run_view import COLUMNS, NUMBERS, RunView, StepView, error_text, rows_of
from noetl_common.errors import Invalid

if TYPE_CHECKING:
    from noetl_cli.api import Api

# A result that a person can take in; a larger one is named.
SHOWN_BYTES_MAX = 2048
# Of the API's answer: what the steps below say better, and what is not in it for this question.
HIDDEN = frozenset({"progress_detail", "events", "events_included", "events_endpoint", "pagination"})


def run(
    target: Annotated[str, typer.Argument(metavar="FILE|PATH", help="A playbook file, or a path in the catalog.")],
    *,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value over the workload; a.b=1 goes deeper. Repeat it.")
    ] = None,
    payload: Annotated[Path | None, typer.Option(help="A YAML or JSON mapping over the workload.")] = None,
    server: Server = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run, and run nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Run a playbook and wait for its end. Without a server one is started here, for as long as the run takes.

    Exit code 0 when it completed, 1 when it failed or was cancelled.
    """
    output = Format.JSON if as_json else output
    given = payload_of(settings or [], payload)
    file = Path(target)
    text = read_document(file) if file.is_file() else None
    if text is None and (file.suffix in (".yaml", ".yml") or file.is_dir()):
        raise Invalid(f"{target}: expected a file, found {'a folder' if file.is_dir() else 'no such file'}")
    if dry_run:
        _plan(target, text, given, output=output)
        return
    signal.signal(signal.SIGTERM, _end_orderly)
    if text is not None:
        check_document(text, source=file)
    from noetl_cli.target import connected_or_started

    with connected_or_started(server) as (api, tend):
        where: dict[str, Any] = {"path": target}
        if text is not None:
            where = {"catalog_id": register_document(api, text, source=file)["catalog_id"]}
        execution_id = api.execute(where, given)
        from noetl_cli.progress import follow

        view = follow(api, execution_id, tend=tend)
        detail = api.execution(execution_id)
        if output is Format.JSON or _is_short(detail.get("result")):
            detail["result"] = _result(api, detail.get("result"))
    show(detail, view, output)
    if view.status != "COMPLETED":
        raise typer.Exit(1)


def _plan(target: str, text: str | None, given: dict[str, Any], *, output: Format) -> None:
    if text is None:
        raise Invalid(f"{target}: expected a playbook file for --dry-run, found no such file")
    from noetl_cli.plan import plain_plan, plan_of, show_plan

    check_document(text, source=Path(target))
    plan = plan_of(text, given)
    if output is Format.JSON:
        print_json(plain_plan(plan))
        return
    for warning in plan["warnings"]:
        say_problem(warning, source=target)
    show_plan(plan)


def show(detail: dict[str, Any], view: RunView, output: Format) -> None:
    """Print how the run ended: one JSON document with its result, or a table of its steps and its result."""
    if output is Format.JSON:
        shown = {key: value for key, value in detail.items() if key not in HIDDEN}
        print_json({**shown, "status": view.status, "steps": [step_of(step) for step in view.steps]})
        return
    print_table(COLUMNS, rows_of(view), right=NUMBERS)
    result = detail.get("result")
    if view.status == "COMPLETED" and result is not None:
        sys.stdout.write(f"result  {result_text(result)}\n")
        sys.stdout.flush()
    took = f" in {duration(detail['duration_seconds'])}" if detail.get("duration_seconds") is not None else ""
    say(f"execution {detail['execution_id']}  {view.status}{took}")
    error = error_text(detail.get("error") or view.error)
    if view.status != "COMPLETED" and error:
        say(f"error: {error}")


def result_text(result: Any) -> str:
    """Return a result in a line; for one that is only named, how large it is and how to see it."""
    if isinstance(result, dict) and result.get("kind") == "result_ref":
        return f"{size(int(result.get('bytes') or 0))}, shown by -o json"
    return msgspec.json.encode(result, enc_hook=str).decode()


def step_of(step: StepView) -> dict[str, Any]:
    """Return a step as the JSON document has it."""
    items = {
        "total": step.items,
        "done": step.done,
        "failed": step.failed,
        "in_flight": step.in_flight,
        "more": step.more,
        "rate": step.rate,
    }
    return {
        "step": step.name,
        "status": step.status,
        "attempts": step.attempts,
        "items": items if step.is_loop else None,
        "duration_s": round(step.duration_s, 3),
    }


def _is_short(reference: Any) -> bool:
    """Return True for a reference to a payload that is small enough to be looked at."""
    return isinstance(reference, dict) and 0 < int(reference.get("bytes") or 0) <= SHOWN_BYTES_MAX


def _result(api: "Api", reference: Any) -> Any:
    """Return the payload that a run's result names; the reference itself where it names more than one payload."""
    if isinstance(reference, dict) and reference.get("ref") and reference.get("shape") != "loop":
        return api.resolve(str(reference["ref"]))
    return reference


def _end_orderly(number: int, frame: FrameType | None) -> NoReturn:
    """Leave through every `finally`, so that what was started is stopped."""
    sys.exit(128 + number)
