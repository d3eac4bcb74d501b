"""The script tool: a python script from a file, a URL or the document, run in one of this worker's interpreters.

Elsewhere this kind starts a job of its own in a cluster; here it is the python tool under another name, and
`meta.runner` of the outcome says so.
"""

import msgspec

from noetl_common.core.outcome import Outcome
from services.worker.tools import Call, dispatch, failed

RUNNER = "local python"


async def run(call: Call) -> Outcome:
    """Return the outcome of the script as the python tool has it; `args` as a list is the script's `sys.argv[1:]`.

    Errors: none is raised; error.kind as of the python tool.
    """
    config, given = dict(call.config), dict(call.input)
    args = config.pop("args", None)
    if isinstance(args, dict):
        given = {**args, **given}
    elif isinstance(args, list):
        config["argv"] = [str(arg) for arg in args]
    elif args not in (None, ""):
        message = f"script: args: expected a list or a mapping, found {type(args).__name__}"
        return failed("config", message, code="INVALID")
    outcome = await dispatch(msgspec.structs.replace(call, kind="python", config=config, input=given))
    outcome.meta["runner"] = RUNNER
    return outcome
