"""The container tool: the official client against a stand-in for a cluster, and the process runner for real."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from noetl_common.core.outcome import Outcome
from noetl_common.core.scope import Scope
from noetl_common.core.values import Value
from noetl_common.wire import ClaimedCommand, Report
from services.worker.desk import Desk
from services.worker.tools import CANCELLED, Call, container_cluster, dispatch
from services.worker.tools.container_kubernetes import manifest_of
from services.worker.tools.container_plan import plan_of
from tests.cluster import TOKEN, FakeCluster
from tests.running import start_service, wait_until


def call_of(*, timeout_s: float = 20.0, **config: Any) -> Call:
    async def no_credential(alias: str) -> dict[str, Any]:
        raise AssertionError(alias)

    return Call(
        kind="container",
        label="train",
        step="Train the model",
        execution_id=7,
        scope=Scope(load=lambda ref, key: None, workload=Value({}), ctx={}, results={}),
        credential=no_credential,
        conceals=lambda text: "open sesame" in text,
        attempt=config.pop("attempt", 1),
        idempotency_key=config.pop("key", "key-1"),
        config={"image": "example.com/train:1", **config},
        timeout_s=timeout_s,
    )


async def ran(timeout_s: float = 20.0, **config: Any) -> Outcome:
    return await dispatch(call_of(timeout_s=timeout_s, **config))


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeCluster]:
    monkeypatch.setattr(container_cluster, "PAUSE_S", 0.01)
    fake = FakeCluster()
    async with start_service(fake.service()) as running:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": running.url}}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "work"}}],
            "current-context": "x",
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield fake
        container_cluster.close()


def job_name(**config: Any) -> str:
    call = call_of(**config)
    return str(manifest_of(call, plan_of(call))[0]["metadata"]["name"])


async def test_a_job_runs_once_is_read_and_deleted(cluster: FakeCluster) -> None:
    outcome = await ran(command=["./train"], args=["--epochs", 3], env={"LEVEL": 2, "NONE": None})
    assert outcome.ok, outcome.error
    assert outcome.data["exit_code"] == 0 and outcome.data["stdout"] == outcome.data["logs"] == "hello\n"
    (job,) = cluster.created
    name = job["metadata"]["name"]
    assert name.startswith("noetl-train-the-model-") and len(name) <= 63
    assert (outcome.data["job"], outcome.data["pod"], outcome.data["phase"]) == (name, f"{name}-x1", "Succeeded")
    assert (outcome.data["runner"], outcome.data["namespace"]) == ("kubernetes", "work")
    assert outcome.data["duration_s"] > 0
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert (container["command"], container["args"]) == (["./train"], ["--epochs", "3"])
    assert container["env"] == [{"name": "NOETL_IDEMPOTENCY_KEY", "value": "key-1"}, {"name": "LEVEL", "value": "2"}]
    assert (job["spec"]["backoffLimit"], job["spec"]["activeDeadlineSeconds"]) == (0, 20)
    assert job["spec"]["ttlSecondsAfterFinished"] > 0
    assert cluster.deleted == [name] and not cluster.jobs


def test_every_field_has_its_place_in_the_job() -> None:
    call = call_of(
        namespace="gpu",
        service_account="trainer",
        backoff_limit="2",
        restart_policy="OnFailure",
        node_selector={"cloud.google.com/gke-accelerator": "nvidia-l4"},
        tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists", "toleration_seconds": 5}],
        volumes=[
            {"name": "scratch", "empty_dir": {"size_limit": "1Gi"}, "mount_path": "/scratch"},
            {"name": "key", "secret": {"secret_name": "k"}, "mountPath": "/key", "readOnly": True},
        ],
        volume_mounts=[{"name": "scratch", "mount_path": "/tmp", "sub_path": "t"}],
        resources={"requests": {"cpu": 2}, "limits": {"memory": "8Gi", "nvidia.com/gpu": 1}},
        env=[
            {"name": "A", "value": "x"},
            {"name": "B", "value_from": {"secret_name": "s", "secret_key": "k"}},
            {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
    )
    plan = plan_of(call)
    spec = manifest_of(call, plan)[0]["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert plan.namespace == "gpu" and spec["backoffLimit"] == 2 and pod["restartPolicy"] == "OnFailure"
    assert pod["serviceAccountName"] == "trainer" and "automountServiceAccountToken" not in pod
    assert pod["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "tolerationSeconds": 5}]
    assert pod["volumes"] == [
        {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "key", "secret": {"secretName": "k"}},
    ]
    assert container["volumeMounts"] == [
        {"name": "scratch", "mountPath": "/tmp", "subPath": "t"},
        {"name": "scratch", "mountPath": "/scratch"},
        {"name": "key", "mountPath": "/key", "readOnly": True},
    ]
    assert container["resources"] == {"requests": {"cpu": "2"}, "limits": {"memory": "8Gi", "nvidia.com/gpu": "1"}}
    assert container["env"][2:] == [
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    assert (
        manifest_of(call_of(), plan_of(call_of()))[0]["spec"]["template"]["spec"]["automountServiceAccountToken"]
        is False
    )


@pytest.mark.parametrize(
    ("ends_as", "waiting", "kind", "code", "retryable", "words"),
    [
        ({"exitCode": 3}, None, "exit", "CONTAINER_EXIT", False, "expected exit code 0, found 3"),
        ({"exitCode": 137, "reason": "OOMKilled"}, None, "memory", "CONTAINER_OOM", False, "OOMKilled"),
        (
            {"job_reason": "DeadlineExceeded"},
            None,
            "timeout",
            "CONTAINER_TIMEOUT",
            True,
            "has not ended within 20 s",
        ),
        (
            {"job_reason": "BackoffLimitExceeded"},
            None,
            "container",
            "CONTAINER_BACKOFF_LIMIT",
            True,
            "BackoffLimitExceeded",
        ),
        (
            {"pod": {"reason": "Evicted", "message": "The node was low on resource: memory."}},
            None,
            "container",
            "CONTAINER_EVICTED",
            True,
            "low on resource",
        ),
        (
            None,
            {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "example.com/train:1"'},
            "image",
            "CONTAINER_IMAGE_PULL",
            False,
            "example.com/train:1",
        ),
        (None, {"reason": "InvalidImageName"}, "image", "CONTAINER_IMAGE_NAME", False, "InvalidImageName"),
        (
            None,
            {"reason": "CreateContainerConfigError", "message": 'secret "s" not found'},
            "config",
            "CONTAINER_CONFIG",
            False,
            'secret "s" not found',
        ),
    ],
)
async def test_each_way_to_fail_has_an_error_of_its_own(
    cluster: FakeCluster,
    ends_as: dict[str, Any] | None,
    waiting: dict[str, Any] | None,
    kind: str,
    code: str,
    retryable: bool,
    words: str,
) -> None:
    cluster.ends_as, cluster.waiting = ends_as, waiting
    outcome = await ran(key=f"key-{code}")
    error = outcome.error
    assert error is not None and outcome.status == "error"
    assert (error["kind"], error["code"], error["retryable"]) == (kind, code, retryable), error
    assert words in error["message"] and error["job"] in cluster.deleted
    assert outcome.data["exit_code"] == (ends_as or {}).get("exitCode")
    assert error.get("exit_code") == (ends_as or {}).get("exitCode")


async def test_a_run_again_adopts_the_job_of_the_worker_that_died(cluster: FakeCluster) -> None:
    cluster.ends_as = None
    first = asyncio.create_task(ran())
    await wait_until(lambda: cluster.reads > 0)
    first.cancel()  # as when a worker stops, or its lease is lost
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not cluster.deleted, "a job whose worker is gone must wait for the next"
    again = asyncio.create_task(ran())
    reads = cluster.reads
    await wait_until(lambda: cluster.reads > reads + 1)
    cluster.ended[job_name()] = {"exitCode": 0}
    outcome = await again
    assert outcome.ok and len(cluster.created) == 1 and cluster.deleted == [job_name()]


async def test_a_run_that_is_cancelled_deletes_its_job(cluster: FakeCluster) -> None:
    cluster.ends_as = None
    task = asyncio.create_task(ran())
    await wait_until(lambda: cluster.reads > 0)
    task.cancel(CANCELLED)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cluster.deleted == [job_name()]


async def test_secrets_stand_in_a_secret_that_goes_with_the_job_and_not_in_the_job(cluster: FakeCluster) -> None:
    fields: dict[str, Any] = {
        "command": ["./train", "--key=open sesame"],
        "args": ["plain", "open sesame"],
        "env": {"KEY": "open sesame", "LEVEL": 2},
    }
    cluster.ends_as = None
    task = asyncio.create_task(ran(**fields))
    await wait_until(lambda: cluster.reads > 0)
    (job,) = cluster.jobs.values()
    (secret,) = cluster.secrets.values()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "open sesame" not in json.dumps(job)
    name = job["metadata"]["name"]
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["./train", "$(NOETL_SECRET_0)"]
    assert container["args"] == ["plain", "$(NOETL_SECRET_1)"]
    keys = {each["name"]: each["valueFrom"]["secretKeyRef"] for each in container["env"] if "valueFrom" in each}
    assert keys == {key: {"name": name, "key": key} for key in ("KEY", "NOETL_SECRET_0", "NOETL_SECRET_1")}
    assert secret["stringData"] == {
        "KEY": "open sesame",
        "NOETL_SECRET_0": "--key=open sesame",
        "NOETL_SECRET_1": "open sesame",
    }
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"]}
    assert secret["metadata"]["name"] == name and secret["metadata"]["ownerReferences"] == [owner]
    # Whoever runs the command again adopts the Job, and stores the Secret that the first may not have come to.
    cluster.ended[name] = {"exitCode": 0}
    outcome = await ran(**fields)
    assert outcome.ok and len(cluster.created) == 1 and cluster.secrets[name] == secret


async def test_a_pod_that_is_quicker_than_its_secret_is_waited_for(cluster: FakeCluster) -> None:
    cluster.ends_as = None
    message = f'secret "{job_name(env={"KEY": "open sesame"})}" not found'
    cluster.waiting = {"reason": "CreateContainerConfigError", "message": message}
    task = asyncio.create_task(ran(env={"KEY": "open sesame"}))
    await wait_until(lambda: cluster.reads > 1)
    cluster.waiting = None
    cluster.ended[job_name()] = {"exitCode": 0}
    outcome = await task
    assert outcome.ok, outcome.error


async def test_a_job_that_cannot_have_its_secret_does_not_wait_for_it(cluster: FakeCluster) -> None:
    cluster.secrets_refused = True
    error = (await ran(env={"KEY": "open sesame"})).error
    assert error is not None and (error["kind"], error["code"]) == ("auth", "K8S_403")
    assert cluster.deleted == [job_name()] and "open sesame" not in error["message"]


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_the_desk_tells_a_cancelled_run_from_a_lost_lease(cluster: FakeCluster, is_cancelled: bool) -> None:
    cluster.ends_as = None
    ids = {"execution_id": 7, "command_id": 8, "event_id": 6, "claim_token": 9, "context_id": 1}
    command = ClaimedCommand(**ids, step="train", attempt=1)

    async def work() -> Report:
        await ran()
        raise AssertionError("the job has no end")

    desk = Desk(1)
    desk.start(command, work())
    task = desk.running[9].task
    await wait_until(lambda: cluster.reads > 0)
    desk.abandon(9, is_cancelled=is_cancelled)
    await asyncio.wait([task])
    assert cluster.deleted == ([job_name()] if is_cancelled else [])
    assert desk.reports_waiting() == is_cancelled


@pytest.mark.parametrize("left", ["failed attempt", "other fields"])
async def test_a_job_left_by_something_else_is_not_taken_for_this_one(cluster: FakeCluster, left: str) -> None:
    call = call_of(args=["other"]) if left == "other fields" else call_of()
    cluster.ends_as = {"exitCode": 1}
    cluster.put(manifest_of(call, plan_of(call))[0])
    cluster.ends_as = {"exitCode": 0}
    outcome = await ran(attempt=2)
    assert outcome.ok, outcome.error
    assert len(cluster.created) == 1 and len(cluster.deleted) == 2


async def test_the_next_pass_of_a_task_never_gets_the_end_of_the_last(cluster: FakeCluster) -> None:
    cluster.deletes_refused = container_cluster.TRIES_MAX
    assert (await ran()).ok and cluster.jobs, "the first job is still there"
    cluster.logs = "second\n"
    second = await ran()
    assert second.ok and second.data["logs"] == "second\n" and len(cluster.created) == 2


async def test_a_job_that_somebody_deletes_is_an_error_that_may_be_retried(cluster: FakeCluster) -> None:
    cluster.ends_as = None
    task = asyncio.create_task(ran())
    await wait_until(lambda: cluster.reads > 0)
    cluster.jobs.clear()
    error = (await task).error
    assert error is not None and (error["code"], error["retryable"]) == ("CONTAINER_JOB_GONE", True)


@pytest.mark.parametrize(
    ("refusals", "kind", "code", "retryable"),
    [
        ([(403, "cannot create resource jobs")], "auth", "K8S_403", False),
        ([(422, 'Job "x" is invalid: spec.template')], "config", "K8S_422", False),
        ([(500, "etcd is slow")] * 6, "server_error", "K8S_500", True),
        ([(503, "starting"), (429, "wait")], "", "", False),
    ],
)
async def test_what_the_cluster_refuses_is_told_and_what_passes_is_asked_again(
    cluster: FakeCluster, refusals: list[tuple[int, str]], kind: str, code: str, retryable: bool
) -> None:
    cluster.refusals = list(refusals)
    outcome = await ran()
    if not code:
        assert outcome.ok, outcome.error
        return
    error = outcome.error
    assert error is not None and (error["kind"], error["code"], error["retryable"]) == (kind, code, retryable)
    assert refusals[0][1] in error["message"]


async def test_long_logs_keep_their_end(cluster: FakeCluster) -> None:
    cluster.logs = "".join(f"line {number} {'x' * 100}\n" for number in range(4000)) + "the end\n"
    outcome = await ran()
    assert len(outcome.data["logs"]) < 70_000
    assert outcome.data["logs"].startswith("[truncated") and outcome.data["logs"].endswith("the end\n")


async def test_waiting_for_a_job_holds_up_nothing(cluster: FakeCluster) -> None:
    cluster.ends_as = None
    task = asyncio.create_task(ran())
    beats = 0
    while cluster.reads < 3:
        await asyncio.sleep(0.005)
        beats += 1
    cluster.ended[job_name()] = {"exitCode": 0}
    assert (await task).ok and beats > 20


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"image": ""}, "image: expected the name of an image, found ''"),
        ({"command": "echo hi"}, "command: expected a list of texts, found str"),
        ({"args": [{"a": 1}]}, "args[0]: expected text, found dict"),
        ({"env": [1]}, "env: expected a mapping"),
        ({"env": {"A B": 1}}, "env[0].name: expected the name of a variable, found 'A B'"),
        ({"resources": {"memory": "1Gi"}}, "resources: expected {requests, limits}, found 'memory'"),
        ({"namespace": "Not This"}, "namespace: expected small letters"),
        ({"restart_policy": "Always"}, "restart_policy: expected Never or OnFailure, found 'Always'"),
        ({"backoff_limit": -1}, "backoff_limit: expected 0 to 100, found -1"),
        ({"volumes": [{"name": "v", "host_path": {"path": "/"}}]}, "found hostPath"),
        ({"volumes": [{"empty_dir": {}}]}, "volumes[0].name: expected a name, found nothing"),
        ({"tolerations": {"key": "x"}}, "tolerations: expected a list of mappings, found dict"),
        ({"node_selector": ["x"]}, "node_selector: expected a mapping, found list"),
    ],
)
async def test_a_wrong_field_is_named(config: dict[str, Any], words: str) -> None:
    error = (await ran(**config)).error
    assert error is not None and error["kind"] == "config"
    assert words in error["message"]


async def test_without_a_cluster_it_says_what_is_expected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    error = (await ran()).error
    assert error is not None and error["kind"] == "config"
    assert "run the worker in one or set KUBECONFIG" in error["message"]


@pytest.fixture
def as_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_CONTAINER_RUNNER", "process")


@pytest.mark.parametrize(
    ("config", "code", "stdout", "error_code"),
    [
        ({"command": ["printf", "%s|"], "args": ["a b", 2]}, 0, "a b|2|", ""),
        ({"command": ["sh", "-c", 'printf "$X $NOETL_IDEMPOTENCY_KEY"'], "env": {"X": 1}}, 0, "1 key-1", ""),
        ({"command": ["sh", "-c", "echo out; echo why >&2; exit 4"]}, 4, "out\n", "CONTAINER_EXIT"),
        ({"command": ["no-such-program"]}, 127, "", "CONTAINER_EXIT"),
        ({"command": ["sleep", "60"], "timeout_s": 0.3}, None, "", "CONTAINER_TIMEOUT"),
        (
            {
                "command": ["python3", "-c", "x = 'x' * (1 << 30)"],
                "resources": {"limits": {"memory": "256Mi"}},
            },
            1,
            "",
            "CONTAINER_EXIT",
        ),
    ],
)
@pytest.mark.usefixtures("as_process")
async def test_the_process_runner_runs_the_command_and_says_what_it_is(
    config: dict[str, Any], code: int | None, stdout: str, error_code: str
) -> None:
    outcome = await ran(**config)
    assert outcome.data["runner"] == "process" and outcome.data["job"] is None
    assert (outcome.data["exit_code"], outcome.data["stdout"]) == (code, stdout), outcome
    assert (outcome.error or {}).get("code", "") == error_code


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "command: expected a program"),
        ({"command": ["true"], "env": [{"name": "A", "value_from": {"secret_name": "s"}}]}, "no cluster to take it"),
        ({"command": ["true"], "resources": {"limits": {"memory": "lots"}}}, "expected a quantity like 512Mi"),
    ],
)
@pytest.mark.usefixtures("as_process")
async def test_the_process_runner_refuses_what_only_a_cluster_can(config: dict[str, Any], words: str) -> None:
    error = (await ran(**config)).error
    assert error is not None and words in error["message"]
