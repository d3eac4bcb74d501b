"""The secrets tool: secrets of the worker or of a store elsewhere, for the tasks behind it in the same pipeline.

What is stored of its result, and of every other result of the command, has `***` in their place.
"""

from typing import Any

from noetl_common.core.outcome import Outcome
from noetl_common.errors import DependencyMissing, Invalid, NoetlError, NotFound, Unavailable
from services.worker.tools import Call, failed
from services.worker.tools.secret_sources import login_of, read_secret


async def run(call: Call) -> Outcome:
    """Return {provider, name, value} of the secret `name`, or {key: value} of `map`.

    Errors: none is raised; error.kind is config, not_found, connection or dependency.
    """
    config = {**call.config, **call.input}
    provider = str(config.get("provider") or "env")
    try:
        return Outcome(data=await _read(call, config, provider))
    except NotFound as exc:
        return failed("not_found", f"secrets: {exc}", code="SECRET_NOT_FOUND")
    except DependencyMissing as exc:
        return failed("dependency", f"secrets: {exc}", code=exc.code)
    except Unavailable as exc:
        return failed("connection", f"secrets: {exc}", code=exc.code, retryable=True)
    except NoetlError as exc:
        return failed("config", f"secrets: {exc}", code=exc.code)


async def _read(call: Call, config: dict[str, Any], provider: str) -> dict[str, Any]:
    wanted = config.get("map")
    login = await login_of(config, call.credential)
    if isinstance(wanted, dict) and wanted:
        found: dict[str, Any] = {str(key): await read_secret(provider, name, login) for key, name in wanted.items()}
        for value in found.values():
            call.conceal(value)
        return found
    name = next((config[field] for field in ("secret", "secret_name", "key", "path") if config.get(field)), None)
    if name is None:
        raise Invalid("expected `secret` with a name, or `map` with a name for each key, found neither")
    value = await read_secret(provider, name, login)
    call.conceal(value)
    return {"provider": provider, "name": name, "value": value}
