"""A server that speaks the parts of batch/v1 and core/v1 that the container tool uses: a stand-in for a cluster.

What it answers is written from the Kubernetes API reference, and the official client asks it; no cluster is behind it.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from noetl_common.process import Service

TOKEN = "cluster-token"


class FakeCluster:
    """The Jobs of one namespace. `ends_as` is how the next Job ends, None: not; `waiting` why its pod waits."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.ended: dict[str, dict[str, Any]] = {}  # {job: what ends it}
        self.created: list[dict[str, Any]] = []
        self.deleted: list[str] = []
        self.logs = "hello\n"
        self.refusals: list[tuple[int, str]] = []  # answers before all others
        self.ends_as: dict[str, Any] | None = {"exitCode": 0}
        self.waiting: dict[str, Any] | None = None
        self.reads = 0
        self.deletes_refused = 0
        self.secrets: dict[str, dict[str, Any]] = {}
        self.secrets_refused = False

    def service(self) -> Service:
        jobs, job = "/apis/batch/v1/namespaces/{ns}/jobs", "/apis/batch/v1/namespaces/{ns}/jobs/{name}"
        routes = [
            Route(jobs, self._create, methods=["POST"]),
            Route(job, self._read, methods=["GET"]),
            Route(job, self._delete, methods=["DELETE"]),
            Route("/api/v1/namespaces/{ns}/secrets", self._create_secret, methods=["POST"]),
            Route("/api/v1/namespaces/{ns}/secrets/{name}", self._delete_secret, methods=["DELETE"]),
            Route("/api/v1/namespaces/{ns}/pods", self._pods, methods=["GET"]),
            Route("/api/v1/namespaces/{ns}/pods/{name}/log", self._log, methods=["GET"]),
        ]
        return Service(name="cluster", asgi=Starlette(routes=routes), host="127.0.0.1", port=0)

    def put(self, manifest: dict[str, Any], *, namespace: str = "work", age_s: float = 0) -> dict[str, Any]:
        """Add a Job as the API server would."""
        moment = (datetime.now(UTC) - timedelta(seconds=age_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata = {**manifest["metadata"], "namespace": namespace, "creationTimestamp": moment}
        metadata["uid"] = f"uid-{len(self.created)}-{id(manifest)}"
        job = {**manifest, "metadata": metadata, "status": {}}
        self.jobs[metadata["name"]] = job
        if self.ends_as is not None:
            self.ended[metadata["name"]] = self.ends_as
        return job

    async def _create(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        manifest = await request.json()
        name = manifest["metadata"]["name"]
        if name in self.jobs:
            return _status(409, "AlreadyExists", f'jobs.batch "{name}" already exists')
        self.created.append(manifest)
        return JSONResponse(self.put(manifest, namespace=request.path_params["ns"]), status_code=201)

    async def _read(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        self.reads += 1
        name = request.path_params["name"]
        job = self.jobs.get(name)
        if job is None:
            return _status(404, "NotFound", f'jobs.batch "{name}" not found')
        if ended := self.ended.get(name):
            job["status"] = {"conditions": [_condition(ended)]}
        return JSONResponse(job)

    async def _delete(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        if self.deletes_refused:
            self.deletes_refused -= 1
            return _status(500, "InternalError", "etcd is slow")
        name = request.path_params["name"]
        asked = request.query_params.get("propagationPolicy")
        if self.jobs.pop(name, None) is None:
            return _status(404, "NotFound", f'jobs.batch "{name}" not found')
        self.ended.pop(name, None)
        assert asked == "Background", "pods of a deleted job would live on"
        self.deleted.append(name)
        return _status(200, "", "", status="Success")

    async def _create_secret(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        if self.secrets_refused:
            return _status(403, "Forbidden", "secrets is forbidden: User cannot create resource secrets")
        manifest = await request.json()
        name = manifest["metadata"]["name"]
        if name in self.secrets:
            return _status(409, "AlreadyExists", f'secrets "{name}" already exists')
        self.secrets[name] = manifest
        return JSONResponse(manifest, status_code=201)

    async def _delete_secret(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        if self.secrets.pop(request.path_params["name"], None) is None:
            return _status(404, "NotFound", "secrets not found")
        return _status(200, "", "", status="Success")

    async def _pods(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        key, _, name = request.query_params["labelSelector"].partition("=")
        assert key == "noetl.io/job"
        return JSONResponse({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": self._pods_of(name)})

    def _pods_of(self, name: str) -> list[dict[str, Any]]:
        job = self.jobs.get(name)
        if job is None:
            return []
        ended = self.ended.get(name)
        state: dict[str, Any] = {"running": {}}
        if self.waiting is not None:
            state = {"waiting": self.waiting}
        elif ended is not None and "exitCode" in ended:
            state = {"terminated": {key: ended[key] for key in ("exitCode", "reason") if key in ended}}
        phase = "Pending" if self.waiting else "Running"
        if ended is not None and "exitCode" in ended:
            phase = "Failed" if ended["exitCode"] else "Succeeded"
        status = {
            "phase": phase,
            "containerStatuses": [{"name": "main", "state": state}],
            **(ended or {}).get("pod", {}),
        }
        metadata = {
            "name": f"{name}-x1",
            "labels": job["spec"]["template"]["metadata"]["labels"],
            "creationTimestamp": job["metadata"]["creationTimestamp"],
        }
        return [{"metadata": metadata, "spec": {}, "status": status}]

    async def _log(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        if self.waiting is not None:
            return _status(400, "BadRequest", 'container "main" in pod is waiting to start')
        limit = int(request.query_params["limitBytes"])
        lines = self.logs.splitlines(keepends=True)[-int(request.query_params["tailLines"]) :]
        return PlainTextResponse("".join(lines)[:limit])

    def _refused(self, request: Request) -> Response | None:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return _status(401, "Unauthorized", "Unauthorized")
        if self.refusals:
            code, message = self.refusals.pop(0)
            return _status(code, "Refused", message)
        return None


def _condition(ended: dict[str, Any]) -> dict[str, Any]:
    if ended.get("exitCode") == 0:
        return {"type": "Complete", "status": "True"}
    reason = ended.get("job_reason", "BackoffLimitExceeded")
    return {"type": "Failed", "status": "True", "reason": reason, "message": "Job has reached its limit"}


def _status(code: int, reason: str, message: str, *, status: str = "Failure") -> JSONResponse:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": status,
        "reason": reason,
        "message": message,
    }
    return JSONResponse({**body, "code": code}, status_code=code)
