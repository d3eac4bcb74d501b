"""The `noetl` command: the verbs, and what their errors mean for the exit code."""

import os
import sys

import typer

from noetl_cli.output import say, say_problem
from noetl_cli.verbs import (
    cancel,
    chaos,
    compact,
    credential,
    doctor,
    down,
    events,
    execute,
    graph,
    lint,
    list_runs,
    register,
    run,
    shards,
    status,
    trace,
    up,
    validate,
    verify,
    version,
)
from noetl_common.errors import (
    ConfigError,
    DependencyMissing,
    Invalid,
    NoetlError,
    PlaybookError,
    Unauthorized,
    Unavailable,
)

EXIT_FAILED, EXIT_USAGE, EXIT_CONFIG, EXIT_DEPENDENCY, EXIT_INTERRUPTED = 1, 2, 3, 4, 130

app = typer.Typer(
    name="noetl",
    help="Run NoETL playbooks: here on this machine, or on a server.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("exec")(execute.execute)
app.command("up")(up.up)
app.command("down")(down.down)
app.command("status")(status.status)
app.command("list")(list_runs.list_runs)
app.command("events")(events.events)
app.command("trace")(trace.trace)
app.command("cancel")(cancel.cancel)
app.command("register")(register.register)
app.command("validate")(validate.validate)
app.command("lint")(lint.lint)
app.command("graph")(graph.graph)
app.add_typer(credential.app, name="credential")
app.add_typer(shards.app, name="shards")
app.command("doctor")(doctor.doctor)
app.command("compact")(compact.compact)
app.command("verify")(verify.verify)
app.command("chaos")(chaos.chaos)
app.command("version")(version.version)


def main() -> None:
    """Run the command and end the process: 0 completed, 1 failed, 2 usage, 3 configuration, 4 dependency missing."""
    try:
        app()
    except NoetlError as error:
        explain(error)
        sys.exit(exit_code_of(error))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of a pipe has had enough; its end of the output is not an error of ours.
        sys.stderr.close()
        sys.exit(EXIT_FAILED)


def explain(error: NoetlError) -> None:
    """Print an error for a person: every problem of a document, else the message."""
    if isinstance(error, PlaybookError):
        for problem in error.problems:
            say_problem(problem)
        return
    if isinstance(error, Unauthorized):
        token = "was refused" if os.environ.get("NOETL_API_TOKEN") else "is not set"
        say(f"error: {error}; NOETL_API_TOKEN {token}")
        return
    pointer = f" (at {error.pointer})" if isinstance(error, Invalid) and error.pointer else ""
    say(f"error: {error}{pointer}")


def exit_code_of(error: NoetlError) -> int:
    """Return the exit code that an error ends the command with."""
    if isinstance(error, Invalid):
        return EXIT_USAGE
    if isinstance(error, ConfigError):
        return EXIT_CONFIG
    if isinstance(error, DependencyMissing | Unavailable):
        return EXIT_DEPENDENCY
    return EXIT_FAILED


if __name__ == "__main__":
    main()
