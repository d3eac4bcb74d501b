"""The stack on a laptop: Postgres, NATS and every role under one state directory, on loopback."""

import base64
import http.client
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from noetl_cli.embedded.databases import PLAYBOOK_CREDENTIAL, check_answers, ensure_playbook_database
from noetl_cli.embedded.nats import start_nats
from noetl_cli.embedded.postgres import discard_postgres, start_postgres
from noetl_cli.embedded.roles import START_ORDER, Child, Role, base_environ, given_url, last_words, stop_in_order
from noetl_cli.embedded.server import LOOPBACK, Server, free_port
from noetl_cli.state_dir import Running, RunningRole, StateDir
from noetl_common.errors import ConfigError, DependencyMissing, Invalid

DEFAULT_PORT = 8082
READY_TIMEOUT_S = 60.0
WORKERS_DEFAULT = 2
REPLICAS_MAX = 64
START_RESTARTS_MAX = 2
EXIT_CONFIG = 3  # what a role ends with when a setting is wrong: trying again changes nothing
ROLES = ("meta", "ingest", "compute", "compactor", "worker")


Link = Callable[[str, str, str], str]
# {setting: the server that its URLs name}
LINKED = {"DATABASE_URL": "postgres", "NATS_URL": "nats", "NOETL_SERVER_URL": "ingest"}

STARTERS: dict[str, Callable[..., Server]] = {"postgres": start_postgres, "nats": start_nats}


def direct(_who: str, _what: str, url: str) -> str:
    """Return the URL by which a process reaches a server: the server's own."""
    return url


class Plan(msgspec.Struct, kw_only=True):
    """What to run. `port`: of the API, None for any free one. `replicas` None: all roles in one process.

    `link` says by which URL a process (its name) reaches a server ("postgres", "nats", "ingest") that has this URL.
    """

    owner: str
    port: int | None = None
    replicas: dict[str, int] | None = None
    restart: bool = True
    settings: dict[str, str] = {}
    link: Link = direct


class Stack:
    """A stack this process starts, tends and stops. Use it from the main thread: its children end with that thread."""

    def __init__(self, state: StateDir, plan: Plan) -> None:
        self.state = state
        self.plan = plan
        self.children: list[Child] = []
        self.servers: dict[str, Server] = {}
        self.running: Running | None = None
        self.timings_s: dict[str, float] = {}

    def start(self) -> Running:
        """Start everything and return once the API is ready.

        Errors: Conflict when another process runs this state directory; DependencyMissing when the port is taken,
        or a part is not installed or does not come up.
        """
        self.state.lock()
        self.state.withdraw()
        port = _checked_port(self.plan.port)
        database_url, nats_url, playbook_credential = self._start_servers()
        environ = {
            **base_environ(),
            "DATABASE_URL": database_url,
            "NATS_URL": nats_url,
            "NOETL_HOST": LOOPBACK,
            "NOETL_STORE_DIR": str(self.state.path / "results"),
            **self._key_setting(),
            **self.plan.settings,
        }
        begun = time.monotonic()
        for role in roles_of(self.plan, port):
            role = msgspec.structs.replace(role, environ=_linked(role, environ, self.plan.link))
            self.children.append(Child(role, environ=environ, log_dir=self.state.log_dir))
        api_url = f"http://{LOOPBACK}:{port}"
        self._wait_until_ready()
        self.timings_s["roles"] = time.monotonic() - begun
        if playbook_credential:
            _put_credential(api_url, playbook_credential)
        self.running = Running(
            pid=os.getpid(), owner=self.plan.owner, api_url=api_url, database_url=database_url, nats_url=nats_url
        )
        self._publish()
        return self.running

    def tend(self) -> list[str]:
        """Start again what has died (unless told not to); return a sentence for each."""
        if not self.plan.restart:
            return []
        said = []
        for name in [name for name, server in self.servers.items() if not server.alive()]:
            # At the port it had: its clients connect again by themselves.
            port = urlsplit(self.servers[name].url).port
            self.servers[name] = STARTERS[name](self.state.path, port=port)
            said.append(f"{name} had ended and was started again")
        for child in self.children:
            if child.tend():
                said.append(f"{child.role.name} had ended and was started again; its log: {child.log_path}")
        if said:
            self._publish()
        return said

    def stop(self) -> None:
        """Stop workers, ingest, compute, meta, NATS, Postgres, in this order. Safe after a start that failed."""
        if self.state.is_mine():
            self.state.withdraw()
        stop_in_order(self.children)
        for server in reversed(self.servers.values()):
            server.stop()
        self.state.unlock()

    def _start_servers(self) -> tuple[str, str, dict[str, Any]]:
        """Start what the environment does not give; return both URLs and the playbooks' credential."""
        begun = time.monotonic()
        credential: dict[str, Any] = {}
        database_url = given_url("DATABASE_URL")
        if not database_url:
            postgres = self.servers["postgres"] = start_postgres(self.state.path)
            database_url = postgres.url
            credential = ensure_playbook_database(postgres.url, postgres.home)
        else:
            check_answers(database_url)
        nats_url = given_url("NATS_URL")
        if not nats_url:
            nats = self.servers["nats"] = start_nats(self.state.path)
            nats_url = nats.url
        self.timings_s["servers"] = time.monotonic() - begun
        return database_url, nats_url, credential

    def _key_setting(self) -> dict[str, str]:
        """Return what names the key that seals credentials: nothing when the user named one."""
        name = "NOETL_ENCRYPTION_KEY"
        if os.environ.get(name) or os.environ.get(f"{name}_FILE"):
            return {}
        return {f"{name}_FILE": str(_kept_key(self.state.path))}

    def _wait_until_ready(self) -> None:
        """Return once every role that listens on a known port says it is ready."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        waiting = [child for child in self.children if child.role.port]
        while waiting:
            waiting = [child for child in waiting if not is_ready(child.role.port)]
            for child in self.children:
                self._check_alive(child)
            if waiting and time.monotonic() > deadline:
                names = ", ".join(child.role.name for child in waiting)
                words = last_words(waiting[0].log_path)
                raise DependencyMissing(f"not ready within {READY_TIMEOUT_S:.0f} s: {names}; its last words:\n{words}")
            if waiting:
                self.tend()
                time.sleep(0.03)

    def _check_alive(self, child: Child) -> None:
        """Give up on a role that keeps ending while everything starts. Errors: ConfigError, DependencyMissing."""
        status = child.exit_status()
        if status is None:
            return
        words = last_words(child.log_path)
        if status == EXIT_CONFIG:
            raise ConfigError(words)
        if not self.plan.restart or child.restarts >= START_RESTARTS_MAX:
            raise DependencyMissing(f"{child.role.name} ended with {status}; its last words:\n{words}")

    def _publish(self) -> None:
        """Write who runs now; nothing before the first time everything is ready."""
        if self.running is not None:
            self.running.roles = [
                RunningRole(role=child.role.role, pid=child.pid, port=child.role.port) for child in self.children
            ]
            self.state.publish(self.running)


@contextmanager
def throwaway_stack(folder: Path, plan: Plan) -> Iterator[Stack]:
    """Lend a stack that has started; at the end it is stopped, and its data goes, wherever they are."""
    stack = Stack(StateDir(folder), plan)
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()
        discard_postgres(folder)


def roles_of(plan: Plan, port: int) -> list[Role]:
    """Return the processes of a plan; the first ingest listens on `port`, each worker knows all.

    A compactor runs only where the plan names one.
    """
    if plan.replicas is None:
        return [Role(role="all", index=1, port=port)]
    roles: list[Role] = []
    ingest_ports = [port] + [free_port() for _ in range(plan.replicas.get("ingest", 1) - 1)]
    for kind in START_ORDER[1:]:
        for index in range(plan.replicas.get(kind, 0 if kind == "compactor" else 1)):
            own_port = ingest_ports[index] if kind == "ingest" else free_port()
            environ = {"NOETL_COMPACTOR_ENABLED": "true"} if kind == "compactor" else {}
            if kind == "worker":
                # Round robin: with several ingests each worker has another one to talk to first.
                turned = ingest_ports[index % len(ingest_ports) :] + ingest_ports[: index % len(ingest_ports)]
                environ["NOETL_SERVER_URL"] = ",".join(f"http://{LOOPBACK}:{each}" for each in turned)
            roles.append(Role(role=kind, index=index + 1, port=own_port, environ=environ))
    return roles


def _linked(role: Role, environ: Mapping[str, str], link: Link) -> dict[str, str]:
    """Return the environment of a role, each server's URL as `link` has it; one setting may list several."""
    given = {**environ, **role.environ}
    for name, what in LINKED.items():
        if name in given:
            given[name] = ",".join(link(role.name, what, url) for url in given[name].split(","))
    return given


def replicas_from(*, processes: bool, workers: int | None, given: list[str]) -> dict[str, int] | None:
    """Return processes a role from `--processes [N]` and `--replicas role=n`; None: all in one process.

    Errors: Invalid for an unknown role or an impossible number.
    """
    if not processes and not given:
        if workers is not None:
            raise Invalid("a number of workers is for --processes")
        return None
    replicas = {"meta": 1, "ingest": 1, "compute": 1, "worker": workers or WORKERS_DEFAULT}
    if os.environ.get("NOETL_COMPACTOR_ENABLED", "").lower() in ("true", "1"):
        replicas["compactor"] = 1
    for text in given:
        role, _, number = text.partition("=")
        if role not in ROLES or not number.isdigit() or not 1 <= int(number) <= REPLICAS_MAX:
            raise Invalid(
                f"--replicas: expected role=n, role one of {', '.join(ROLES)}, n 1..{REPLICAS_MAX}; found {text!r}"
            )
        replicas[role] = int(number)
    return replicas


def is_ready(port: int) -> bool:
    """Return True when the role on the loopback port says it is ready."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _checked_port(port: int | None) -> int:
    if port is None:
        return free_port()
    if free_port(port) != port:
        raise DependencyMissing(f"port {port} on {LOOPBACK} is taken by another program: choose one with --port")
    return port


def _kept_key(state_path: Path) -> Path:
    """Return the file of the key that seals credentials, drawn at the first time."""
    path = state_path / "encryption.key"
    if not path.exists():
        partial = path.with_suffix(".new")
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(base64.b64encode(secrets.token_bytes(32)).decode())
        partial.replace(path)
    return path


def _put_credential(api_url: str, data: Mapping[str, Any]) -> None:
    """Store the login of the playbooks' database; each time, because the port may have changed."""
    from noetl_cli.api import Api  # here, so that httpx is imported while the roles start

    with Api(api_url) as api:
        body = {"name": PLAYBOOK_CREDENTIAL, "type": "postgres", "data": dict(data)}
        api.put_credential({**body, "description": "the embedded Postgres, database `playbook`"})
