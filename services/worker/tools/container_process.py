"""The container tool without a cluster: its command as a process of this worker, which says that it is one.

The image is not used: what `command` and `args` name must be on the worker's machine. The process ends as a shell of
the shell tool does, with all that it started, and under the same limits.
"""

import re
import time

from noetl_common.core.outcome import Outcome
from noetl_common.errors import Invalid
from noetl_common.log import get_logger
from services.worker.tools import Call, failed
from services.worker.tools.container_plan import Plan
from services.worker.tools.shell import MEMORY_BYTES_DEFAULT, Finished, execute, inherited, last_words
from services.worker.tools.shell import Plan as Script

log = get_logger(__name__)

RUNNER = "process"
UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(k|M|G|T|Ki|Mi|Gi|Ti|)")
MESSAGE_CHARS_MAX = 300


async def run(call: Call, plan: Plan) -> Outcome:
    """Return the outcome of the process; `runner` says `process`, and there is no job and no pod.

    Errors: Invalid for a plan that only a cluster can run.
    """
    if not plan.command:
        raise Invalid("command: expected a program: the process runner does not know what the image would start")
    if secret := next((each["name"] for each in plan.env if "valueFrom" in each), None):
        raise Invalid(f"env.{secret}: expected a value: the process runner has no cluster to take it from")
    log.info("container.process", execution_id=call.execution_id, step=call.step, image=plan.image, runner=RUNNER)
    ceiling = call.processes.memory_bytes_max if call.processes else MEMORY_BYTES_DEFAULT
    script = Script(
        shell="sh",
        script='exec "$@"',
        arguments=(*plan.command, *plan.args),
        cwd=None,
        environ={**inherited(), **plan.environ},
        capture=True,
        memory_bytes_max=min(ceiling, _memory_bytes(plan) or ceiling),
    )
    began = time.monotonic()
    try:
        finished = await execute(script, call.timeout_s)
    except (OSError, ValueError) as exc:
        return failed("config", f"container: cannot be started: {exc}", code="CONTAINER_NOT_STARTED")
    return _outcome(call, finished, time.monotonic() - began)


def _outcome(call: Call, finished: Finished, elapsed_s: float) -> Outcome:
    data = {
        "exit_code": finished.code,
        "stdout": finished.stdout,
        "stderr": finished.stderr,
        "logs": finished.stdout + finished.stderr,
        "job": None,
        "pod": None,
        "phase": "Succeeded" if finished.code == 0 else "Failed",
        "duration_s": round(elapsed_s, 3),
        "runner": RUNNER,
    }
    if finished.code == 0:
        return Outcome(data=data)
    if finished.code is None:
        message = f"container: not ended within {call.timeout_s:g} s; its process was killed"
        outcome = failed("timeout", message, code="CONTAINER_TIMEOUT", retryable=True)
    else:
        tail = last_words(finished.stderr, MESSAGE_CHARS_MAX)
        message = f"container: expected exit code 0, found {finished.code}" + (f": {tail}" if tail else "")
        outcome = failed("exit", message, code="CONTAINER_EXIT", exit_code=finished.code)
    outcome.data = data
    return outcome


def _memory_bytes(plan: Plan) -> int:
    given = plan.resources.get("limits", {}).get("memory", "")
    if not given:
        return 0
    match = QUANTITY.fullmatch(given)
    if match is None:
        raise Invalid(f"resources.limits.memory: expected a quantity like 512Mi, found {given!r}")
    return int(float(match[1]) * UNITS[match[2]])
