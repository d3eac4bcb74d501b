"""What the container tool asks of a cluster, through the official client, in threads of its own."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from noetl_common.errors import Invalid, NoetlError, ToolFailed
from services.worker.tools.libraries import library

THREADS_MAX = 8
REQUEST_TIMEOUT_S = 15.0
TRIES_MAX = 6  # of a question that the cluster did not answer, each a little later
PAUSE_S = 0.5
LOG_LINES_MAX = 5000
LOG_BYTES_MAX = 4 * 1024 * 1024  # read from the cluster
LOG_BYTES_KEPT = 64 * 1024  # of their end
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

T = TypeVar("T")


class Cluster:
    """One namespace of a cluster."""

    def __init__(self, client: Any, namespace: str) -> None:
        self.namespace = namespace
        kubernetes = library("kubernetes.client", extra="k8s")
        self._batch = kubernetes.BatchV1Api(client)
        self._core = kubernetes.CoreV1Api(client)

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any] | None:
        """Return the new Job, None when there is one of its name.

        Errors: ToolFailed, here and below, with the error of the tool's outcome.
        """
        return await self._asked(
            lambda **more: self._batch.create_namespaced_job(self.namespace, manifest, **more), 409
        )

    async def put_secret(self, manifest: dict[str, Any]) -> None:
        """Store a Secret, in place of one of its name."""

        name = manifest["metadata"]["name"]

        async def create() -> dict[str, Any] | None:
            return await self._asked(
                lambda **more: self._core.create_namespaced_secret(self.namespace, manifest, **more), 409
            )

        if await create() is None:
            # One that an earlier run left goes with the Job it belonged to, which may be the next moment.
            await self._asked(lambda **more: self._core.delete_namespaced_secret(name, self.namespace, **more), 404)
            await create()

    async def job(self, name: str) -> dict[str, Any] | None:
        """Return a Job, None when there is none."""
        return await self._asked(lambda **more: self._batch.read_namespaced_job(name, self.namespace, **more), 404)

    async def pods(self, job: str) -> list[dict[str, Any]]:
        """Return the pods of a Job."""
        selector = f"noetl.io/job={job}"
        found = await self._asked(
            lambda **more: self._core.list_namespaced_pod(self.namespace, label_selector=selector, **more)
        )
        return list((found or {}).get("items") or [])

    async def logs(self, pod: str, container: str) -> str:
        """Return the end of what a container printed; empty when there is nothing to read any more."""

        def read(**more: Any) -> Any:
            return self._core.read_namespaced_pod_log(
                pod,
                self.namespace,
                container=container,
                tail_lines=LOG_LINES_MAX,
                limit_bytes=LOG_BYTES_MAX,
                **more,
            )

        with contextlib.suppress(ToolFailed):
            raw: bytes = await self._raw(read)
            if len(raw) <= LOG_BYTES_KEPT:
                return raw.decode(errors="replace")
            # From the beginning of a line: half a secret would not be known for one.
            end = raw[-LOG_BYTES_KEPT:].partition(b"\n")[2].decode(errors="replace")
            return f"[truncated: the last lines of {len(raw)} bytes or more]\n{end}"
        return ""  # a container that never started, or a node that is gone, has no logs

    async def delete(self, name: str) -> None:
        """Delete a Job and its pods; nothing when it is gone."""
        await self._asked(
            lambda **more: self._batch.delete_namespaced_job(
                name, self.namespace, propagation_policy="Background", **more
            ),
            404,
        )

    async def _asked(self, ask: Callable[..., Any], absent: int = 0) -> dict[str, Any] | None:
        """Return the answer, None for the status `absent`."""
        try:
            found = msgspec.json.decode(await self._raw(ask))
        except ToolFailed as exc:
            if absent and exc.error.get("http_status") == absent:
                return None
            raise
        except msgspec.DecodeError as exc:
            raise ToolFailed(_error("connection", "K8S_ANSWER", f"expected JSON: {exc}", retryable=True)) from exc
        return found if isinstance(found, dict) else {}

    async def _raw(self, ask: Callable[..., Any]) -> bytes:
        def once() -> bytes:
            # The answer as it came: the client's own models refuse what newer clusters add.
            answer = ask(_preload_content=False, _request_timeout=REQUEST_TIMEOUT_S)
            try:
                data: bytes = answer.data
                return data
            finally:
                with contextlib.suppress(AttributeError):
                    answer.release_conn()

        for tries in range(1, TRIES_MAX + 1):
            try:
                return await slowly(once)
            except NoetlError:
                raise
            except Exception as exc:
                error = _classified(exc)
                if not error["retryable"] or tries == TRIES_MAX:
                    raise ToolFailed(error) from exc
            await asyncio.sleep(PAUSE_S * tries)
        raise AssertionError("the last try returns or raises")


async def slowly(do: Callable[[], T]) -> T:
    """Return what `do` returns, run in a thread: a cluster that does not answer holds up no other tool."""
    global _threads
    if _threads is None:
        _threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="kubernetes")
    return await asyncio.get_running_loop().run_in_executor(_threads, do)


def cluster(namespace: str) -> Cluster:
    """Return the cluster that this worker runs in, else the one of its kubeconfig; `namespace` empty for the worker's.

    Errors: DependencyMissing for the library, Invalid when there is no cluster.
    """
    config, kubernetes = library("kubernetes.config", extra="k8s"), library("kubernetes.client", extra="k8s")
    path = os.environ.get("KUBECONFIG", "")
    key = path or "cluster"
    if key not in _clients:
        own = kubernetes.Configuration()
        try:
            if not path and os.environ.get("KUBERNETES_SERVICE_HOST"):
                config.load_incluster_config(client_configuration=own)
            else:
                config.load_kube_config(config_file=path or None, client_configuration=own)
        except config.ConfigException as exc:
            text = " ".join(str(exc).split())
            raise Invalid(f"expected a cluster: run the worker in one or set KUBECONFIG, found none ({text})") from None
        own.retries = False
        _clients[key] = kubernetes.ApiClient(own)
    return Cluster(_clients[key], namespace or _own_namespace(config, path))


def close() -> None:
    """End the threads and forget the connections; the worker calls this when it stops."""
    global _threads
    if _threads is not None:
        _threads.shutdown(wait=False, cancel_futures=True)
        _threads = None
    for client in _clients.values():
        with contextlib.suppress(AttributeError):
            client.rest_client.pool_manager.clear()
    _clients.clear()


def _own_namespace(config: Any, path: str) -> str:
    if path or not os.environ.get("KUBERNETES_SERVICE_HOST"):
        _all, active = config.list_kube_config_contexts(config_file=path or None)
        return str(active["context"].get("namespace") or "default")
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text().strip() or "default"
    except OSError:
        return "default"


def _classified(exc: Exception) -> dict[str, Any]:
    """Return the error of a tool's outcome for what the client raised."""
    status = getattr(exc, "status", None)
    if not isinstance(status, int) or status == 0:
        text = " ".join(str(exc).split())[:300]
        hopeless = "CERTIFICATE" in text or not _is_network(exc)
        return _error("connection", "K8S_CONNECTION", f"the cluster does not answer: {text}", retryable=not hopeless)
    message = str(getattr(exc, "reason", ""))
    try:
        told = msgspec.json.decode(getattr(exc, "body", None) or b"{}")
        message = str(told.get("message") or message) if isinstance(told, dict) else message
    except (msgspec.DecodeError, TypeError):
        pass
    kind = {401: "auth", 403: "auth", 404: "not_found", 429: "rate_limit"}.get(status, "config")
    kind = "server_error" if status >= 500 else kind
    retryable = status == 429 or status >= 500
    return {
        **_error(kind, f"K8S_{status}", f"the cluster answered {status}: {message}"[:500], retryable=retryable),
        "http_status": status,
    }


def _is_network(exc: Exception) -> bool:
    module = type(exc).__module__
    return isinstance(exc, OSError) or module.startswith(("urllib3", "kubernetes"))


def _error(kind: str, code: str, message: str, *, retryable: bool) -> dict[str, Any]:
    return {"kind": kind, "code": code, "message": message, "retryable": retryable}


_threads: ThreadPoolExecutor | None = None
_clients: dict[str, Any] = {}
