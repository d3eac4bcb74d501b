"""The noop tool: does nothing, returns `result` if one is given. For routing steps and pipeline initialisers."""

from noetl_common.core.outcome import Outcome
from services.worker.tools import Call


async def run(call: Call) -> Outcome:
    """Return the given result, or the given message with a status; without either, null."""
    config = call.config
    if "result" in config:
        return Outcome(data=config["result"])
    if "message" in config:
        return Outcome(data={"status": "ok", "message": config["message"]})
    return Outcome()
