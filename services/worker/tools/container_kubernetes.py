"""The container tool on Kubernetes: start or find the Job, await its end, read its logs, delete it.

A run that is cancelled deletes its Job. A worker that stops, or loses the command, leaves it for the worker that gets
the command next; what nobody comes back for ends at its deadline and is removed an hour after its end.
"""

import asyncio
import hashlib
import json
import math
import re
import time
from typing import Any

import msgspec

from noetl_common.core.outcome import Outcome
from noetl_common.errors import ToolFailed
from noetl_common.log import get_logger
from services.worker.tools import CANCELLED, Call, failed
from services.worker.tools.container_cluster import Cluster, cluster, slowly
from services.worker.tools.container_plan import Plan, sealed_of

log = get_logger(__name__)

RUNNER = "kubernetes"
CONTAINER = "main"
PAUSE_S_MAX = 2.0
GRACE_S = 30.0  # the cluster ends a Job at its deadline; past this we do not wait for it to say so
REMOVE_AFTER_S = 3600
SLUG_CHARS_MAX = 36
CONSUMED_MAX = 4096
MESSAGE_CHARS_MAX = 300
# Why a container waits that will not start by waiting: (kind of the error, its code)
HOPELESS = {
    "ImagePullBackOff": ("image", "CONTAINER_IMAGE_PULL"),
    "ErrImageNeverPull": ("image", "CONTAINER_IMAGE_PULL"),
    "InvalidImageName": ("image", "CONTAINER_IMAGE_NAME"),
    "CreateContainerConfigError": ("config", "CONTAINER_CONFIG"),
    "CreateContainerError": ("config", "CONTAINER_CONFIG"),
    "RunContainerError": ("config", "CONTAINER_CONFIG"),
}
_consumed: dict[str, None] = {}  # Jobs whose end this process has taken already, by their uid


class Ended(msgspec.Struct, kw_only=True):
    """How a Job ended: `reason` is empty when it completed, else a word of Kubernetes; `pod` its last pod."""

    job: dict[str, Any]
    pod: dict[str, Any]
    reason: str = ""
    message: str = ""


async def run(call: Call, plan: Plan, *, namespace: str) -> Outcome:
    """Return the outcome of the Job.

    Errors: DependencyMissing when the library is absent, Invalid when no cluster is configured.
    """
    api = await slowly(lambda: cluster(namespace))
    manifest, secrets = manifest_of(call, plan)
    name = manifest["metadata"]["name"]
    began = time.monotonic()
    try:
        job = await _started(api, manifest, until=began + call.timeout_s)
        if secrets:
            await _hand_over(api, secret_of(job, secrets))
        ended = await _ended(api, job, until=time.monotonic() + call.timeout_s + GRACE_S)
        outcome = await _outcome(api, call, ended, elapsed_s=time.monotonic() - began)
        _consume(job["metadata"]["uid"])
    except asyncio.CancelledError as exc:
        if exc.args[:1] == (CANCELLED,):
            await asyncio.shield(_deleted(api, name))
        raise
    except TimeoutError as exc:
        await _deleted(api, name)
        return failed("timeout", f"container: {exc}", code="CONTAINER_TIMEOUT", retryable=True, job=name)
    except ToolFailed as exc:
        return Outcome(status="error", error={**exc.error, "message": f"container: {exc}", "job": name})
    await _deleted(api, name)
    return outcome


def manifest_of(call: Call, plan: Plan) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the Job, and what it takes from a Secret of its name: many may read Jobs, few may read Secrets.

    Its name is the same at every run of the command; so is `noetl.io/spec`, unless fields other than secrets differ.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", call.step.lower()).strip("-")[:SLUG_CHARS_MAX].strip("-")
    digest = hashlib.sha256(f"{call.idempotency_key} {call.label}".encode()).hexdigest()[:16]
    name = "-".join(part for part in ("noetl", slug, digest) if part)
    labels = {
        "app.kubernetes.io/managed-by": "noetl",
        "noetl.io/execution-id": str(call.execution_id),
        "noetl.io/job": name,
    }
    sealed = sealed_of(call, plan, name)
    container = {
        "name": CONTAINER,
        "image": plan.image,
        "env": sealed.env,
        **({"command": sealed.command} if sealed.command else {}),
        **({"args": sealed.args} if sealed.args else {}),
        **({"resources": plan.resources} if plan.resources else {}),
        **({"volumeMounts": plan.volume_mounts} if plan.volume_mounts else {}),
    }
    pod: dict[str, Any] = {"restartPolicy": plan.restart_policy, "containers": [container]}
    if plan.service_account:
        pod["serviceAccountName"] = plan.service_account
    else:
        pod["automountServiceAccountToken"] = False
    more = {"nodeSelector": plan.node_selector, "tolerations": plan.tolerations, "volumes": plan.volumes}
    pod |= {field: value for field, value in more.items() if value}
    spec = {
        "backoffLimit": plan.backoff_limit,
        "activeDeadlineSeconds": max(1, math.ceil(call.timeout_s)),
        "ttlSecondsAfterFinished": REMOVE_AFTER_S,
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    told = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()
    annotations = {"noetl.io/spec": told, "noetl.io/attempt": str(call.attempt), "noetl.io/step": call.step}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": spec,
    }
    return job, sealed.secrets


def secret_of(job: dict[str, Any], secrets: dict[str, str]) -> dict[str, Any]:
    """Return the Secret of a Job that was started; the cluster removes it with the Job, whoever removes that."""
    name, labels = job["metadata"]["name"], job["metadata"].get("labels") or {}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
        "stringData": secrets,
    }


async def _started(api: Cluster, manifest: dict[str, Any], *, until: float) -> dict[str, Any]:
    """Return the Job of this name: a new one, or the one that an earlier run of the command started."""
    name = manifest["metadata"]["name"]
    pause_s = 0.1
    while True:
        job = await api.create(manifest)
        if job is not None:
            return job
        found = await api.job(name)
        if found is not None and _is_ours(found, manifest):
            log.info("container.adopted", job=name)
            return found
        if found is not None and not found["metadata"].get("deletionTimestamp"):
            await api.delete(name)
        if time.monotonic() > until:
            raise TimeoutError(f"an earlier job {name} was not removed in time")
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, PAUSE_S_MAX)


def _is_ours(found: dict[str, Any], manifest: dict[str, Any]) -> bool:
    """Return whether a Job of our name is this very call's: not another pass's, nor a failed earlier attempt's."""
    metadata = found["metadata"]
    if metadata.get("deletionTimestamp") or metadata.get("uid") in _consumed:
        return False
    was, now = metadata.get("annotations") or {}, manifest["metadata"]["annotations"]
    if was.get("noetl.io/spec") != now["noetl.io/spec"]:
        return False
    return not _condition(found, "Failed") or int(was.get("noetl.io/attempt", 1)) >= int(now["noetl.io/attempt"])


async def _ended(api: Cluster, job: dict[str, Any], *, until: float) -> Ended:
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    pause_s = 0.1
    while True:
        found = await api.job(name)
        if found is None or found["metadata"].get("uid") != uid:
            message = f"the job {name} was deleted by somebody else before its end"
            raise ToolFailed({"kind": "container", "code": "CONTAINER_JOB_GONE", "message": message, "retryable": True})
        pods = await api.pods(name)
        # A retry of the Job makes another pod: the newest tells.
        pod = max(pods, key=lambda each: str(each["metadata"].get("creationTimestamp", "")), default={})
        if _condition(found, "Complete"):
            return Ended(job=found, pod=pod)
        if failure := _condition(found, "Failed"):
            reason = str(failure.get("reason") or "Failed")
            return Ended(job=found, pod=pod, reason=reason, message=str(failure.get("message") or ""))
        waiting = _status(pod).get("state", {}).get("waiting") or {}
        # A pod may be quicker than the Secret that is stored behind its Job; it looks again.
        is_early = f'secret "{name}" not found' in str(waiting.get("message"))
        if waiting.get("reason") in HOPELESS and not is_early:
            return Ended(job=found, pod=pod, reason=waiting["reason"], message=str(waiting.get("message") or ""))
        if time.monotonic() > until:
            raise TimeoutError(f"job {name} has not ended within its time" + _why_waiting(pod))
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, PAUSE_S_MAX)


async def _outcome(api: Cluster, call: Call, ended: Ended, *, elapsed_s: float) -> Outcome:
    name = ended.job["metadata"]["name"]
    pod_name = ended.pod.get("metadata", {}).get("name")
    state = _status(ended.pod)
    terminated = state.get("state", {}).get("terminated") or state.get("lastState", {}).get("terminated") or {}
    exit_code = terminated.get("exitCode")
    if exit_code is None and not ended.reason:
        exit_code = 0  # the Job completed, and its pod is gone already
    logs = await api.logs(pod_name, CONTAINER) if pod_name else ""
    data = {
        "exit_code": exit_code,
        "stdout": logs,
        "logs": logs,
        "job": name,
        "pod": pod_name,
        "namespace": api.namespace,
        "phase": ended.pod.get("status", {}).get("phase") or ("Failed" if ended.reason else "Succeeded"),
        "duration_s": round(elapsed_s, 3),
        "runner": RUNNER,
    }
    outcome = Outcome(data=data)
    if ended.reason:
        outcome = _failure(call, ended, terminated)
        outcome.data = data
        assert outcome.error is not None
        outcome.error |= {"job": name, "reason": ended.reason}
    return outcome


def _failure(call: Call, ended: Ended, terminated: dict[str, Any]) -> Outcome:
    name, reason = ended.job["metadata"]["name"], ended.reason
    told = " ".join(f"{reason}: {ended.message}".split())[:MESSAGE_CHARS_MAX] if ended.message else reason
    if reason in HOPELESS:
        kind, code = HOPELESS[reason]
        return failed(kind, f"container: job {name} cannot start: {told}", code=code)
    if reason == "DeadlineExceeded":
        message = f"container: job {name} has not ended within {call.timeout_s:g} s{_why_waiting(ended.pod)}"
        return failed("timeout", message, code="CONTAINER_TIMEOUT", retryable=True)
    exit_code = terminated.get("exitCode")
    if terminated.get("reason") == "OOMKilled":
        message = f"container: job {name} used more memory than its limit and was killed (OOMKilled)"
        return failed("memory", message, code="CONTAINER_OOM", exit_code=exit_code)
    status = ended.pod.get("status", {})
    if status.get("reason") in ("Evicted", "NodeLost", "NodeShutdown", "Terminated", "Preempting"):
        message = f"container: job {name} lost its node: {status['reason']}: {status.get('message', '')}"
        return failed("container", message[: 2 * MESSAGE_CHARS_MAX], code="CONTAINER_EVICTED", retryable=True)
    if exit_code is not None:
        message = f"container: expected exit code 0, found {exit_code} (job {name}, {told})"
        return failed("exit", message, code="CONTAINER_EXIT", exit_code=exit_code)
    code = "CONTAINER_BACKOFF_LIMIT" if reason == "BackoffLimitExceeded" else "CONTAINER_FAILED"
    return failed("container", f"container: job {name} failed: {told}", code=code, retryable=True)


async def _hand_over(api: Cluster, secret: dict[str, Any]) -> None:
    """Store the Secret of a Job; a Job that cannot have it would wait for it until its deadline."""
    try:
        await api.put_secret(secret)
    except ToolFailed:
        await _deleted(api, secret["metadata"]["name"])
        raise


async def _deleted(api: Cluster, name: str) -> None:
    """Delete the Job and its pods; one that cannot be deleted removes itself later."""
    try:
        await api.delete(name)
    except ToolFailed as exc:
        log.warning("container.not_deleted", job=name, error=str(exc))


def _consume(uid: str) -> None:
    if len(_consumed) >= CONSUMED_MAX:
        del _consumed[next(iter(_consumed))]
    _consumed[uid] = None


def _condition(job: dict[str, Any], kind: str) -> dict[str, Any]:
    conditions = job.get("status", {}).get("conditions") or []
    return next((each for each in conditions if each.get("type") == kind and each.get("status") == "True"), {})


def _status(pod: dict[str, Any]) -> dict[str, Any]:
    statuses = pod.get("status", {}).get("containerStatuses") or []
    return next((each for each in statuses if each.get("name") == CONTAINER), {})


def _why_waiting(pod: dict[str, Any]) -> str:
    """Return what a pod says it waits for, as the end of a sentence."""
    conditions = pod.get("status", {}).get("conditions") or []
    held: dict[str, Any] = next((each for each in conditions if each.get("type") == "PodScheduled"), {})
    held = held if held.get("status") == "False" else {}
    waiting = _status(pod).get("state", {}).get("waiting") or {}
    found = held or waiting
    words = ": ".join(str(found[field]) for field in ("reason", "message") if found.get(field))
    return f"; its pod waits: {words}"[:MESSAGE_CHARS_MAX] if words else ""
