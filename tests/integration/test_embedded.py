"""The embedded servers: they keep what was written, end with their parent, and come back after a double kill."""

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from noetl_cli.embedded import discard_postgres, start_nats, start_postgres
from noetl_cli.embedded.databases import ensure_playbook_database
from noetl_cli.embedded.postgres import find_binaries
from noetl_cli.embedded.server import accepts, free_port
from noetl_common.errors import DependencyMissing

DEADLINE_S = 30.0
# Starts the servers, tells their process ids, and waits to be killed.
PARENT = """
import sys, time
from pathlib import Path
from noetl_cli.embedded import start_nats, start_postgres
state = Path(sys.argv[1])
postgres, nats = start_postgres(state), start_nats(state)
print(postgres.pid, nats.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[Path]:
    """A state directory of one's own; the cluster may live elsewhere, so it is discarded."""
    yield tmp_path / "state"
    discard_postgres(tmp_path / "state")


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Return whether the process runs; one that has ended and waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def write_one(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS kept (n int)")
        conn.execute("INSERT INTO kept VALUES (1)")


def count(url: str) -> int:
    with psycopg.connect(url) as conn:
        row = conn.execute("SELECT count(*) FROM kept").fetchone()
        assert row is not None
        return int(row[0])


def test_a_stopped_postgres_comes_back_at_its_port_with_its_rows(state_dir: Path) -> None:
    first = start_postgres(state_dir)
    write_one(first.url)
    first.stop()
    assert not first.alive()
    second = start_postgres(state_dir)
    try:
        assert second.url == first.url
        assert count(second.url) == 1
    finally:
        second.stop()


def test_postgres_takes_settings_and_listens_on_loopback_with_a_password(state_dir: Path) -> None:
    server = start_postgres(state_dir, settings={"max_connections": "33"})
    try:
        with psycopg.connect(server.url) as conn:
            shown = {}
            for name in ("max_connections", "listen_addresses", "unix_socket_directories", "fsync", "jit"):
                row = conn.execute("SELECT current_setting(%s)", [name]).fetchone()
                assert row is not None
                shown[name] = row[0]
        assert shown == {
            "max_connections": "33",
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "on",
            "jit": "off",
        }
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(server.url, password="wrong")
        assert stat.S_IMODE(server.home.stat().st_mode) == 0o700
    finally:
        server.stop()


def test_when_the_remembered_port_is_taken_another_is_found(state_dir: Path) -> None:
    import socket

    first = start_postgres(state_dir)
    port = int(first.url.rsplit(":", 1)[1].split("/")[0])
    first.stop()
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", port))
        squatter.listen()
        second = start_postgres(state_dir)
        try:
            assert second.url != first.url
        finally:
            second.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_the_servers_end_with_a_parent_that_is_killed(state_dir: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(state_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None and parent.stdin is not None
    pids = [int(text) for text in parent.stdout.readline().split()]
    assert len(pids) == 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    parent.stdin.close()
    until(lambda: not any(is_running(pid) for pid in pids))
    server = start_postgres(state_dir)
    log = (server.home / "postgres.log").read_text(encoding="utf-8")
    server.stop()
    assert "fast shutdown" in log


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_postgres_starts_again_after_parent_and_server_were_both_killed(state_dir: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(state_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None and parent.stdin is not None
    postgres_pid, nats_pid = (int(text) for text in parent.stdout.readline().split())
    os.kill(postgres_pid, signal.SIGKILL)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    parent.stdin.close()
    server = start_postgres(state_dir)
    try:
        write_one(server.url)
        assert count(server.url) == 1
    finally:
        server.stop()
    until(lambda: not is_running(nats_pid))


def test_a_second_postgres_on_the_same_folder_is_refused_with_its_words(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noetl_cli.embedded.postgres.START_TIMEOUT_S", 0.3)
    server = start_postgres(state_dir)
    try:
        with pytest.raises(DependencyMissing, match=r"postmaster\.pid"):
            start_postgres(state_dir)
        assert server.alive()
        with psycopg.connect(server.url):
            pass
    finally:
        server.stop()


def test_the_playbooks_login_reaches_its_database_and_no_other(state_dir: Path) -> None:
    server = start_postgres(state_dir)
    try:
        first = ensure_playbook_database(server.url, server.home)
        again = ensure_playbook_database(server.url, server.home)
        assert first == again
        login = {
            "host": first["db_host"],
            "port": first["db_port"],
            "user": first["db_user"],
            "password": first["db_password"],
        }
        with psycopg.connect(**login, dbname=first["db_name"], autocommit=True) as conn:
            conn.execute("CREATE TABLE mine (n int)")
        with pytest.raises(psycopg.OperationalError, match="permission denied"):
            psycopg.connect(**login, dbname="noetl")
    finally:
        server.stop()


def test_nats_has_jetstream_and_comes_back_at_its_port(state_dir: Path) -> None:
    first = start_nats(state_dir)
    port = int(first.url.rsplit(":", 1)[1])
    assert accepts(port)
    first.stop()
    assert not accepts(port)
    second = start_nats(state_dir, port=port)
    try:
        assert second.url == first.url
        assert (state_dir / "nats" / "jetstream").is_dir()
    finally:
        second.stop()


def test_a_missing_binary_names_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("noetl_cli.embedded.postgres._PACKAGE", "no_such_package_at_all")
    with pytest.raises(DependencyMissing, match=r"pip install 'noetl\[embedded\]'"):
        find_binaries(None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(DependencyMissing, match="NATS_URL"):
        start_nats(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root must hand the binaries to another user")
def test_binaries_below_a_private_folder_are_copied_for_the_server_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from noetl_cli.embedded import postgres as module

    copied: list[Path] = []

    def copy(package: Path) -> Path:
        copied.append(package)
        return tmp_path

    monkeypatch.setattr(module, "others_may_enter", lambda _folder: False)
    monkeypatch.setattr(module, "_copied", copy)
    assert find_binaries(65534).is_relative_to(tmp_path)
    assert copied


@pytest.mark.skipif(os.geteuid() != 0, reason="only root keeps a cluster outside of its state directory")
def test_a_cluster_outside_goes_when_its_temporary_state_directory_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from noetl_cli.embedded import postgres as module

    monkeypatch.setattr(module, "OUTSIDE", str(tmp_path))
    kept_elsewhere = Path("/no/such/disk/.noetl")
    for name, state_dir in (("gone", tmp_path / "a"), ("used", tmp_path), ("elsewhere", kept_elsewhere)):
        home = tmp_path / f"{module.OUTSIDE_PREFIX}{name}"
        home.mkdir()
        (home / module.STATE_DIR_NOTE).write_text(str(state_dir), encoding="utf-8")
    (tmp_path / f"{module.OUTSIDE_PREFIX}unsaid").mkdir()
    module._sweep()
    left = {home.name.removeprefix(module.OUTSIDE_PREFIX) for home in tmp_path.iterdir()}
    assert left == {"used", "elsewhere", "unsaid"}


def test_a_free_port_is_the_preferred_one_when_nobody_has_it() -> None:
    import socket

    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        taken = holder.getsockname()[1]
        assert free_port(taken) != taken
    assert free_port(taken) == taken
