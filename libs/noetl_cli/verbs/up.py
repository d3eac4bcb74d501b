"""noetl up: keep the stack running on this machine."""

import os
import signal
import subprocess
import sys
import time
from types import FrameType
from typing import Annotated, NoReturn

import typer

from noetl_cli.output import say
from noetl_cli.state_dir import Running, StateDir
from noetl_common.errors import ConfigError, Conflict, DependencyMissing

TEND_EVERY_S = 0.2
DETACH_TIMEOUT_S = 120.0
PORT_MAX = 65535


def up(
    *,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return once it is ready.")] = False,
    processes: Annotated[
        bool, typer.Option("--processes", help="One process each of ingest, meta, compute, and workers.")
    ] = False,
    workers: Annotated[int | None, typer.Argument(min=1, max=64, help="How many workers with --processes.")] = None,
    replicas: Annotated[
        list[str] | None, typer.Option("--replicas", help="role=n processes of a role. Implies --processes.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=PORT_MAX, help="Port of the API; 0: any free one. NOETL_PORT, else 8082.")
    ] = None,
    restart: Annotated[bool, typer.Option(help="Start a role again when it dies.")] = True,
) -> None:
    """Start Postgres, NATS and all roles and keep them running until Ctrl-C, SIGTERM or `noetl down`.

    `noetl up --processes 4` runs each role as its own process, four workers among them. Playbooks reach a database of
    their own, `playbook`, with the credential `local_postgres`. DATABASE_URL and NATS_URL name servers to use instead.
    """
    state = StateDir.chosen()
    running = state.running()
    if running is not None:
        raise Conflict(f"a stack runs in {state.path} already: {running.api_url} (process {running.pid})")
    if detach:
        _report(state, _detached(state, [argument for argument in sys.argv[1:] if argument not in ("--detach", "-d")]))
        return
    # Imported here: `--detach` needs none of it.
    from noetl_cli.embedded.stack import DEFAULT_PORT, Plan, Stack, replicas_from

    chosen = port if port is not None else port_in(os.environ.get("NOETL_PORT") or str(DEFAULT_PORT))
    wanted = replicas_from(processes=processes, workers=workers, given=replicas or [])
    stack = Stack(state, Plan(owner="up", port=chosen or None, replicas=wanted, restart=restart))
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        _report(state, stack.start())
        while True:
            time.sleep(TEND_EVERY_S)
            for sentence in stack.tend():
                say(sentence)
    except KeyboardInterrupt:
        say("stopping")
    finally:
        stack.stop()


def port_in(text: str) -> int:
    """Return the port that NOETL_PORT names. Errors: ConfigError when it is none."""
    if not text.isdecimal() or int(text) > PORT_MAX:
        raise ConfigError(f"NOETL_PORT: expected a port, 0..{PORT_MAX}, found {text!r}")
    return int(text)


def _report(state: StateDir, running: Running) -> None:
    say(f"ready at {running.api_url}, logs in {state.log_dir}")


def _detached(state: StateDir, arguments: list[str]) -> Running:
    """Start `noetl up` in the background and return what it published. Errors: DependencyMissing with its words."""
    state.log_dir.mkdir(parents=True, exist_ok=True)
    log_path = state.log_dir / "up.log"
    with open(log_path, "wb") as log_file:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "noetl_cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + DETACH_TIMEOUT_S
    while time.monotonic() < deadline:
        running = state.running()
        if running is not None and running.pid == process.pid:
            # It outlives this command on purpose; nobody waits for it.
            process.returncode = 0
            return running
        if process.poll() is not None:
            sys.stderr.write(log_path.read_text(encoding="utf-8", errors="replace"))
            raise typer.Exit(process.returncode)
        time.sleep(0.05)
    process.terminate()
    raise DependencyMissing(f"the stack was not ready within {DETACH_TIMEOUT_S:.0f} s; see {log_path}")


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Treat SIGTERM as Ctrl-C; another one while stopping ends at once, and the kernel ends the children."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise KeyboardInterrupt
