"""noetl down: stop the stack that `up` keeps running."""

import os
import signal
import time

from noetl_cli.output import say
from noetl_cli.state_dir import StateDir
from noetl_common.errors import Unavailable

STOP_TIMEOUT_S = 60.0


def down() -> None:
    """Stop the local stack and wait until it is gone. Its data stays."""
    state = StateDir.chosen()
    holder = state.holder_pid()
    if not holder:
        say(f"nothing runs in {state.path}")
        return
    os.kill(holder, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while state.holder_pid() == holder:
        if time.monotonic() > deadline:
            raise Unavailable(f"process {holder} did not stop within {STOP_TIMEOUT_S:.0f} s; see {state.log_dir}")
        time.sleep(0.02)
    say("stopped")
