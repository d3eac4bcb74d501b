"""The commands of the Kubernetes base, run as they are with their environment, come up and answer their probes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.unit.test_deploy import environment, our_containers

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
ORDER = ("meta", "ingest", "compute", "worker")
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def test_the_deployed_commands_start_answer_their_probes_and_stop(
    empty_dsn: str, nats_url: str, free_port: Callable[[], int], tmp_path: Path
) -> None:
    deployed = {role: (container, environment("base", container)) for role, container in our_containers("base")}
    ports = {role: free_port() for role in deployed}
    # What differs here from a cluster: the addresses, and where results lie.
    place = {"DATABASE_URL": empty_dsn, "NATS_URL": nats_url, "NOETL_HOST": "127.0.0.1"}
    place |= {"NOETL_STORE_DIR": str(tmp_path / "results"), "NOETL_SERVER_URL": f"http://127.0.0.1:{ports['ingest']}"}

    def environ_of(role: str) -> dict[str, str]:
        given = deployed[role][1]
        return (
            given | {name: value for name, value in place.items() if name in given} | {"NOETL_PORT": str(ports[role])}
        )

    command, environ = deployed["meta.migrate"][0]["args"], environ_of("meta.migrate")
    for _time in ("first", "again"):
        with started(command, environ, log=tmp_path / "migrate.log") as process:
            assert process.wait(START_TIMEOUT_S) == 0, (tmp_path / "migrate.log").read_text()

    with ExitStack() as stack:
        running = {}
        for role in ORDER:
            log = tmp_path / f"{role}.log"
            running[role] = stack.enter_context(started(deployed[role][0]["args"], environ_of(role), log=log))
        for role, process in running.items():
            wait_for_probes(
                process, deployed[role][0], url=f"http://127.0.0.1:{ports[role]}", log=tmp_path / f"{role}.log"
            )
        for role in reversed(ORDER):
            running[role].send_signal(signal.SIGTERM)
            assert running[role].wait(STOP_TIMEOUT_S) == 0, (tmp_path / f"{role}.log").read_text()


@contextmanager
def started(arguments: list[str], environ: dict[str, str], *, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run `python -m <arguments>` with that environment and nothing else; it is gone afterwards."""
    bare = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            env=bare | environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(STOP_TIMEOUT_S)


def wait_for_probes(process: "subprocess.Popen[bytes]", container: dict[str, Any], *, url: str, log: Path) -> None:
    """Return once each probe has been answered with 200."""
    deadline = time.monotonic() + START_TIMEOUT_S
    for probe in PROBES:
        path = container[probe]["httpGet"]["path"]
        answer = ""
        while answer != "200":
            assert process.poll() is None, f"{container['args']} ended with {process.returncode}:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"{url}{path} answers {answer}:\n{log.read_text()}"
            answer = _asked(url + path)
            time.sleep(0.05)


def _asked(url: str) -> str:
    try:
        return str(httpx.get(url, timeout=3.0).status_code)
    except httpx.TransportError as error:
        return repr(error)
