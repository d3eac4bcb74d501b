"""noetl down: stop the stack that `up` keeps running."""

import os
import shutil
import signal
import time
from typing import Annotated

import typer

from noetl_cli.output import say
from noetl_cli.state_dir import StateDir
from noetl_common.errors import Unavailable

STOP_TIMEOUT_S = 60.0
# What a stack makes below its state directory. Nothing else there is ours to remove.
OWN_FOLDERS = ("postgres", "nats", "logs", "results")
OWN_FILES = ("stack.json", "encryption.key", "lock")


def down(
    purge: Annotated[bool, typer.Option("--purge", help="Delete the stack's data too: runs, results, keys.")] = False,
) -> None:
    """Stop the local stack and wait until it is gone. Its data stays, unless told otherwise."""
    state = StateDir.chosen()
    holder = state.holder_pid()
    if holder:
        _stop(state, holder)
        say("stopped")
    else:
        say(f"nothing runs in {state.path}")
    if purge and state.path.is_dir():
        state.lock()
        _purge(state)
        say(f"deleted what the stack kept in {state.path}")


def _stop(state: StateDir, holder: int) -> None:
    os.kill(holder, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while state.holder_pid() == holder:
        if time.monotonic() > deadline:
            raise Unavailable(f"process {holder} did not stop within {STOP_TIMEOUT_S:.0f} s; see {state.log_dir}")
        time.sleep(0.02)


def _purge(state: StateDir) -> None:
    from noetl_cli.embedded.postgres import discard_postgres  # here, because a plain `down` needs none of it

    discard_postgres(state.path)
    for name in OWN_FOLDERS:
        shutil.rmtree(state.path / name, ignore_errors=True)
    for name in OWN_FILES:
        (state.path / name).unlink(missing_ok=True)
    if not any(state.path.iterdir()):
        state.path.rmdir()
