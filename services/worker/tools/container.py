"""The container tool: a Kubernetes Job that runs once, awaited; or, where the operator says so, a local process.

The Job's name comes from the idempotency key, so a command that is run again finds the Job that it started before.
`NOETL_IDEMPOTENCY_KEY` in the container's environment names the command, the same at every run of it.
"""

from typing import Annotated, Literal

import msgspec

from noetl_common.config import env, load
from noetl_common.core.outcome import Outcome
from noetl_common.errors import DependencyMissing, Invalid
from services.worker.tools import Call, container_cluster, container_kubernetes, container_process, failed
from services.worker.tools.container_plan import plan_of

Runner = Literal["kubernetes", "process"]
ContainerRunner = Annotated[
    Runner,
    env(
        "NOETL_CONTAINER_RUNNER",
        doc="Where the container tool runs: kubernetes, a Job; process, a process of the worker, without the image.",
    ),
]
ContainerNamespace = Annotated[
    str,
    env("NOETL_CONTAINER_NAMESPACE", doc="Namespace of container Jobs that name none; empty: the worker's own."),
]


class Containers(msgspec.Struct, frozen=True, kw_only=True):
    """How the operator has containers run."""

    container_runner: ContainerRunner = "kubernetes"
    container_namespace: ContainerNamespace = ""


def close() -> None:
    """Forget the cluster; the worker calls this when it stops."""
    container_cluster.close()


async def run(call: Call) -> Outcome:
    """Return {exit_code, stdout, logs, job, pod, namespace, phase, duration_s, runner} of the container.

    `logs` is `stdout` under its other name: their end, when they are long.
    Errors: none is raised; error.kind is exit (with exit_code), memory, image, timeout, container, auth, connection,
    dependency or config.
    """
    try:
        settings = load(Containers)
        plan = plan_of(call)
        if settings.container_runner == "process":
            return await container_process.run(call, plan)
        return await container_kubernetes.run(call, plan, namespace=plan.namespace or settings.container_namespace)
    except Invalid as exc:
        return failed("config", f"container: {exc}", code=exc.code)
    except DependencyMissing as exc:
        return failed("dependency", f"container: {exc}", code=exc.code)
