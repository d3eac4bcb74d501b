"""The gcs tool: objects of Google Cloud Storage are uploaded, downloaded, listed and deleted.

The official client blocks, so it runs in threads. An upload replaces the object as a whole; one that is run again
writes the same object.
"""

import asyncio
import base64
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from noetl_common.core.outcome import Outcome
from noetl_common.db import json_text
from noetl_common.errors import DependencyMissing, Invalid, NoetlError, NotFound, ToolFailed
from services.worker.tools import Call, failed
from services.worker.tools.libraries import library
from services.worker.tools.secret_sources import check_open, login_of
from services.worker.tools.secret_stores import account_of

THREADS_MAX = 8
TIMEOUT_S = 60.0  # of one request
OBJECT_BYTES_MAX = 64 * 1024 * 1024  # of one object that a result carries
LIST_MAX = 10_000
SCHEME = "gs://"


class Plan(msgspec.Struct, kw_only=True, frozen=True):
    """What one call is asked to do. `payload` is what an upload writes; `path` a file of the worker's instead."""

    operation: str
    bucket: str
    key: str
    payload: bytes
    path: str
    content_type: str
    metadata: dict[str, str]
    encoding: str
    max_results: int


async def run(call: Call) -> Outcome:
    """Return what the operation came to.

    Shapes: upload {uri, bucket, object, size, content_type, generation}; download the same with `data`, which is JSON,
    text or base64 (`encoding`); list {bucket, prefix, objects, count, truncated}; delete {uri, bucket, object,
    deleted}.
    Errors: none is raised; error.kind is config, not_found, auth, rate_limit, server_error, client_error, connection,
    timeout or dependency.
    """
    try:
        plan = _plan(call)
        client = await _client(call, plan.bucket)
        async with asyncio.timeout(call.timeout_s):
            do = OPERATIONS[plan.operation]
            return Outcome(data=await _in_thread(lambda: _asked(client, plan, do)))
    except TimeoutError:
        message = f"gcs: no answer within {call.timeout_s:g} s"
        return failed("timeout", message, code="GCS_TIMEOUT", retryable=True)
    except ToolFailed as exc:
        return Outcome(status="error", error={**exc.error, "message": f"gcs: {exc}"})
    except DependencyMissing as exc:
        return failed("dependency", f"gcs: {exc}", code=exc.code)
    except NoetlError as exc:
        code = "CREDENTIAL_NOT_FOUND" if isinstance(exc, NotFound) else exc.code
        return failed("config", f"gcs: {exc}", code=code)


async def close() -> None:
    """End the threads; the worker calls this when it stops."""
    global _threads
    if _threads is not None:
        _threads.shutdown(wait=False, cancel_futures=True)
        _threads = None


def _upload(client: Any, plan: Plan) -> dict[str, Any]:
    blob = client.bucket(plan.bucket).blob(plan.key)
    blob.metadata = plan.metadata or None
    if plan.path:
        try:
            blob.upload_from_filename(plan.path, content_type=plan.content_type or None, timeout=TIMEOUT_S)
        except OSError as exc:
            found = f"{plan.path!r} ({exc.strerror})"
            raise Invalid(f"source: expected a file of the worker's machine, found {found}") from None
    else:
        kind = plan.content_type or "application/octet-stream"
        blob.upload_from_string(plan.payload, content_type=kind, timeout=TIMEOUT_S)
    return {"status": "success", **_described(blob)}


def _download(client: Any, plan: Plan) -> dict[str, Any]:
    blob = client.bucket(plan.bucket).blob(plan.key)
    blob.reload(timeout=TIMEOUT_S)
    if (blob.size or 0) > OBJECT_BYTES_MAX:
        raise Invalid(f"object: expected at most {OBJECT_BYTES_MAX} bytes, found {blob.size}")
    raw: bytes = blob.download_as_bytes(timeout=TIMEOUT_S)
    data, encoding = _content(raw, plan.encoding, str(blob.content_type or ""))
    return {"status": "success", **_described(blob), "data": data, "encoding": encoding}


def _list(client: Any, plan: Plan) -> dict[str, Any]:
    found = client.list_blobs(plan.bucket, prefix=plan.key or None, max_results=plan.max_results + 1, timeout=TIMEOUT_S)
    blobs = [_described(blob) for blob in found]
    kept = blobs[: plan.max_results]
    more = {"count": len(kept), "truncated": len(blobs) > len(kept)}
    return {"status": "success", "bucket": plan.bucket, "prefix": plan.key, "objects": kept, **more}


def _delete(client: Any, plan: Plan) -> dict[str, Any]:
    errors = library("google.api_core.exceptions", extra="gcs")
    try:
        client.bucket(plan.bucket).blob(plan.key).delete(timeout=TIMEOUT_S)
        deleted = True
    except errors.NotFound:
        deleted = False  # as after a run before this one
    uri = f"{SCHEME}{plan.bucket}/{plan.key}"
    return {"status": "success", "uri": uri, "bucket": plan.bucket, "object": plan.key, "deleted": deleted}


OPERATIONS: dict[str, Callable[[Any, Plan], dict[str, Any]]] = {
    "upload": _upload,
    "download": _download,
    "list": _list,
    "delete": _delete,
}
ALIASES = {"put": "upload", "write": "upload", "get": "download", "read": "download", "remove": "delete"}


def _described(blob: Any) -> dict[str, Any]:
    updated = blob.updated.isoformat() if blob.updated else None
    return {
        "uri": f"{SCHEME}{blob.bucket.name}/{blob.name}",
        "bucket": blob.bucket.name,
        "object": blob.name,
        "size": blob.size,
        "content_type": blob.content_type,
        "generation": None if blob.generation is None else str(blob.generation),
        "updated": updated,
        **({"metadata": dict(blob.metadata)} if blob.metadata else {}),
    }


def _content(raw: bytes, wanted: str, content_type: str) -> tuple[Any, str]:
    """Return an object's content as data, and how: json, text or base64."""
    if wanted in ("", "json") and (wanted == "json" or "json" in content_type):
        try:
            return msgspec.json.decode(raw), "json"
        except msgspec.DecodeError as exc:
            if wanted == "json":
                raise Invalid(f"encoding: expected a JSON object in the bucket, found other bytes: {exc}") from None
    if wanted in ("", "text"):
        try:
            return raw.decode(), "text"
        except UnicodeDecodeError:
            if wanted == "text":
                raise Invalid("encoding: expected UTF-8 text in the object, found other bytes; use base64") from None
    return base64.b64encode(raw).decode(), "base64"


def _plan(call: Call) -> Plan:
    config = {**call.input, **call.config}
    operation = str(config.get("operation") or ("upload" if config.get("source") else "")).lower()
    operation = ALIASES.get(operation, operation)
    if operation not in OPERATIONS:
        raise Invalid(f"operation: expected {', '.join(OPERATIONS)}, found {operation!r}")
    path = config.get("source") or ""
    if not isinstance(path, str):
        raise Invalid(f"source: expected the path of a file, found {type(path).__name__}")
    bucket, key = _place(config, operation, path)
    payload, content_type = _payload(config) if operation == "upload" and not path else (b"", "")
    metadata = config.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise Invalid(f"metadata: expected a mapping, found {type(metadata).__name__}")
    encoding = str(config.get("encoding") or "").lower()
    if encoding not in ("", "json", "text", "base64"):
        raise Invalid(f"encoding: expected json, text or base64, found {encoding!r}")
    max_results = config.get("max_results", 1000)
    if not isinstance(max_results, int) or isinstance(max_results, bool) or not 0 < max_results <= LIST_MAX:
        raise Invalid(f"max_results: expected 1 to {LIST_MAX}, found {max_results!r}")
    return Plan(
        operation=operation,
        bucket=bucket,
        key=key,
        payload=payload,
        path=path,
        content_type=str(config.get("content_type") or content_type),
        metadata={str(name): value if isinstance(value, str) else json_text(value) for name, value in metadata.items()},
        encoding=encoding,
        max_results=max_results,
    )


def _place(config: dict[str, Any], operation: str, path: str) -> tuple[str, str]:
    """Return bucket and name of an object, of a URI or of fields of their own; for a list, the prefix."""
    bucket = config.get("bucket") or ""
    key = config.get("object") or config.get("key") or (config.get("prefix") if operation == "list" else "") or ""
    uri = config.get("uri") or config.get("destination") or ""
    for name, value in (("bucket", bucket), ("object", key), ("uri", uri)):
        if not isinstance(value, str):
            raise Invalid(f"{name}: expected text, found {type(value).__name__}")
    if uri:
        if not uri.startswith(SCHEME):
            raise Invalid(f"uri: expected gs://bucket/object, found {uri!r}")
        bucket, _, key = uri.removeprefix(SCHEME).partition("/")
    if not key and path:
        key = Path(path).name
    if not bucket:
        raise Invalid("bucket: expected a name, or `uri` with gs://bucket/object, found nothing")
    if not key and operation != "list":
        raise Invalid("object: expected a name, or `uri` with gs://bucket/object, found nothing")
    return bucket, key


def _payload(config: dict[str, Any]) -> tuple[bytes, str]:
    """Return what an upload writes and its type: text as it is, base64 decoded, anything else as JSON."""
    if "data" not in config:
        raise Invalid("data: expected what to upload, or `source` with the path of a file, found nothing")
    value = config["data"]
    if config.get("encoding") == "base64":
        try:
            return base64.b64decode(str(value), validate=True), "application/octet-stream"
        except ValueError:
            raise Invalid("data: expected base64, found other text") from None
    if isinstance(value, str):
        return value.encode(), "text/plain; charset=utf-8"
    return json_text(value).encode(), "application/json"


async def _client(call: Call, bucket: str) -> Any:
    storage = library("google.cloud.storage", extra="gcs")
    fields = (await login_of(call.config, call.credential)).fields or {}
    account = account_of(fields)
    project = str(fields.get("project") or fields.get("project_id") or "") or None
    if account is not None:
        service_account = library("google.oauth2.service_account", extra="gcs")
        try:
            login = service_account.Credentials.from_service_account_info(account)
        except ValueError:
            raise Invalid("auth: expected a service account's key, found one that cannot be read") from None
        return storage.Client(project=project or account.get("project_id"), credentials=login)
    if token := fields.get("token") or fields.get("access_token"):
        login = library("google.oauth2.credentials", extra="gcs").Credentials(str(token))
        return storage.Client(project=project or "none", credentials=login)
    if fields:
        raise Invalid("auth: expected a credential with service_account_json or token, found neither")
    check_open(bucket)
    errors = library("google.auth.exceptions", extra="gcs")
    try:
        if os.environ.get("STORAGE_EMULATOR_HOST"):
            return storage.Client.create_anonymous_client()
        return await _in_thread(lambda: storage.Client(project=project))
    except (errors.GoogleAuthError, OSError) as exc:
        raise Invalid(f"expected `auth`, or credentials of the worker's machine, found none ({exc})") from None


def _asked(client: Any, plan: Plan, do: Callable[[Any, Plan], dict[str, Any]]) -> dict[str, Any]:
    errors = library("google.api_core.exceptions", extra="gcs")
    auth_errors = library("google.auth.exceptions", extra="gcs")
    network = library("requests.exceptions", extra="gcs")
    where = f"{plan.operation} {SCHEME}{plan.bucket}/{plan.key}"
    try:
        return do(client, plan)
    except errors.GoogleAPICallError as exc:
        raise _refused(where, int(exc.code or 0), exc) from None
    except (auth_errors.TransportError, network.RequestException, errors.RetryError) as exc:
        error = {"kind": "connection", "code": "GCS_CONNECTION", "message": f"{where}: {type(exc).__name__}"}
        raise ToolFailed({**error, "retryable": True}) from None
    except auth_errors.GoogleAuthError as exc:
        message = f"{where}: the login is refused: {type(exc).__name__}"
        raise ToolFailed({"kind": "auth", "code": "GCS_LOGIN", "message": message, "retryable": False}) from None
    except library("google.cloud.storage.exceptions", extra="gcs").InvalidResponse as exc:
        raise _refused(where, int(getattr(exc.response, "status_code", 0)), exc) from None


def _refused(where: str, status: int, exc: Exception) -> ToolFailed:
    kind = {401: "auth", 403: "auth", 404: "not_found", 429: "rate_limit"}.get(status, "client_error")
    kind = "server_error" if status >= 500 else kind
    text = " ".join(str(exc).split())[:300]
    retryable = kind in ("rate_limit", "server_error")
    error = {"kind": kind, "code": f"GCS_{status}", "message": f"{where}: {text}", "retryable": retryable}
    return ToolFailed({**error, "http_status": status})


async def _in_thread(do: Callable[[], Any]) -> Any:
    global _threads
    if _threads is None:
        _threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="gcs")
    return await asyncio.get_running_loop().run_in_executor(_threads, do)


_threads: ThreadPoolExecutor | None = None
