"""The ducklake tool: the duckdb tool on tables of a DuckLake catalog, where DuckDB has that extension."""

import re
from typing import Any

import msgspec

from noetl_common.core.outcome import Outcome
from noetl_common.errors import Invalid
from services.worker.tools import Call
from services.worker.tools.duckdb import Script, outcome_of, script_for
from services.worker.tools.duckdb_session import MEMORY

NAME = re.compile(r"[A-Za-z_]\w*")
REMOTE = ("postgres:", "mysql:")


async def run(call: Call) -> Outcome:
    """Return what the duckdb tool does, with the catalog attached as `catalog_name` and in use.

    Errors: as of the duckdb tool; config when the extension cannot be loaded or the catalog not attached.
    """
    return await outcome_of(call, lambda text: _script(call, text))


def _script(call: Call, text: str) -> Script:
    name = call.config.get("catalog_name") or "lake"
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise Invalid(f"catalog_name: expected letters, digits and _, found {name!r}")
    connection = _text(call.config, "catalog_connection").removeprefix("ducklake:")
    if not connection:
        raise Invalid("catalog_connection: expected a path or postgres:..., found nothing")
    path = _text(call.config, "data_path")
    options = f" (DATA_PATH {_quoted(path)})" if path else ""
    extensions = ["ducklake", *(prefix[:-1] for prefix in REMOTE if connection.startswith(prefix))]
    setup = [(f"LOAD {each}", _missing(each)) for each in extensions]
    attach = f"ATTACH {_quoted('ducklake:' + connection)} AS {name}{options}"
    setup += [(attach, f"catalog_connection: the catalog {name!r} cannot be attached"), (f"USE {name}", "USE")]
    script = script_for(call, text)
    lock_name = "" if connection.startswith(REMOTE) else connection
    return msgspec.structs.replace(script, database=MEMORY, setup=setup, lock_name=lock_name)


def _missing(extension: str) -> str:
    return (
        f"the DuckDB extension {extension!r} cannot be loaded; expected it where the worker runs: "
        f"python -c \"import duckdb; duckdb.execute('INSTALL {extension}')\""
    )


def _text(config: dict[str, Any], name: str) -> str:
    value = config.get(name) or ""
    if not isinstance(value, str):
        raise Invalid(f"{name}: expected text, found {type(value).__name__}")
    return value


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
