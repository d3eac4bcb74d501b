"""Object stores for tests: a SeaweedFS that speaks S3, and an emulator of Google Cloud Storage."""

import io
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from noetl_cli.embedded.server import LOOPBACK, Server, accepts, free_port, log_tail, spawn
from noetl_common.errors import NoetlError
from noetl_common.store.s3 import S3Login, S3Objects

ACCESS_KEY = "tester"
SECRET_KEY = "a-password-of-tests"
START_S_MAX = 60.0
# More memory than that is of no use to a test; with half of it the server does nothing but collect.
MEMORY = "512MiB"
PORTS = (
    *("s3.port", "s3.port.grpc", "master.port", "master.port.grpc", "volume.port", "volume.port.grpc"),
    *("filer.port", "filer.port.grpc", "admin.port", "admin.port.grpc"),
)
TRIES = 3


class EndedEarly(Exception):
    """The server ended before it took an object: somebody else was faster with a port."""


class S3Server:
    """A SeaweedFS of one's own, which a test may kill and start again on the same data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: Server | None = None
        for _ in range(TRIES):
            # Of its own all, or two that start at once take each other's.
            self._ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
            try:
                self.start()
                return
            except EndedEarly:
                continue
        raise AssertionError(f"no S3 server: {log_tail(folder / 'weed.log')}")

    @property
    def login(self) -> S3Login:
        """Return where it is, and the login that it knows."""
        return S3Login(
            endpoint=f"http://{LOOPBACK}:{self._ports['s3.port']}",
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            region="us-east-1",
        )

    def start(self) -> None:
        """Start it, and return once it takes objects."""
        options = {
            **{name: str(port) for name, port in self._ports.items()},
            "dir": str(self._folder / "volumes"),
            "ip": LOOPBACK,
            "ip.bind": LOOPBACK,
            "admin.ui": "false",
            "webdav": "false",
            "master.telemetry": "false",
            "s3.port.iceberg": "0",
            "s3.port.lance": "0",
        }
        program = str(Path(sys.executable).parent / "weed")
        process = spawn(
            [program, "mini", *(f"-{name}={value}" for name, value in options.items())],
            log_path=self._folder / "weed.log",
            death_signal=signal.SIGKILL,
            environ={
                **os.environ,
                "AWS_ACCESS_KEY_ID": ACCESS_KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
                "GOMEMLIMIT": MEMORY,
            },
            cwd=self._folder,
        )
        self._server = Server(process, url=self.login.endpoint, stop_signal=signal.SIGTERM, home=self._folder)
        self._wait(self._folder / "weed.log")

    def kill(self) -> None:
        """End it as a power cut would."""
        assert self._server is not None
        self._server.process.kill()
        self._server.process.wait()
        for port in self._ports.values():
            # It puts its local sockets there, wherever its data are.
            for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                path.unlink()

    def stored_bytes(self) -> int:
        """Return the size of the files that objects stand in."""
        return sum(path.stat().st_size for path in (self._folder / "volumes").glob("*.dat"))

    def _wait(self, log_path: Path) -> None:
        """Return once an object was stored: the server listens a moment before its volumes are there."""
        assert self._server is not None
        objects = S3Objects(self.login, "ready")
        deadline = time.monotonic() + START_S_MAX
        try:
            while self._server.alive():
                try:
                    objects.make_bucket()
                    objects.put("ready", io.BytesIO(b"ready"), 5)
                    return
                except NoetlError:
                    assert time.monotonic() < deadline, f"no S3 server: {log_tail(log_path)}"
                    time.sleep(0.05)
            raise EndedEarly(log_tail(log_path))
        finally:
            objects.close()


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run an S3 server of one's own, in a folder that is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=f"noetl-test-{os.getpid()}-"))
    (folder / "volumes").mkdir()
    try:
        server = S3Server(folder)
        try:
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """Return that many ports, each another, which nobody listens on now."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return sorted(found)


class GcsServer(msgspec.Struct, frozen=True):
    """Where the emulator is, as its clients are told."""

    environ: Mapping[str, str]


@contextmanager
def gcs_server() -> Iterator[GcsServer]:
    """Run an emulator of Google Cloud Storage that keeps objects in memory."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix=f"noetl-test-{os.getpid()}-") as folder:
        log_path = Path(folder) / "gcs.log"
        process = spawn(
            [
                str(Path(sys.executable).parent / "gcp-storage-emulator"),
                *("start", f"--host={LOOPBACK}", f"--port={port}", "--in-memory", "--quiet"),
            ],
            log_path=log_path,
            death_signal=signal.SIGKILL,
        )
        server = Server(process, url=f"http://{LOOPBACK}:{port}", stop_signal=signal.SIGKILL, home=Path(folder))
        try:
            deadline = time.monotonic() + START_S_MAX
            while not accepts(port):
                assert server.alive() and time.monotonic() < deadline, f"no emulator: {log_tail(log_path)}"
                time.sleep(0.02)
            yield GcsServer({"STORAGE_EMULATOR_HOST": server.url, "GOOGLE_CLOUD_PROJECT": "tests"})
        finally:
            server.stop()
