"""The effective workload of an execution: the playbook's defaults, rendered once, under what the caller gave."""

from collections.abc import Mapping
from typing import Any

from noetl_common.core import templates
from noetl_common.core.scope import Scope, nothing_loaded
from noetl_common.core.values import Value
from noetl_common.errors import TemplateFailed


def effective_workload(
    defaults: Mapping[str, Any],
    payload: Mapping[str, Any],
    *,
    execution_id: int,
    system: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return `defaults` shallow-merged with `payload`, which wins; templates among the defaults are rendered.

    A default sees `payload`, `input`, `job`, `execution_id`, what `system` adds (env, now) and its sibling keys.
    One that cannot be rendered stays as it is written: it may be text for a tool.
    """
    id_text = str(execution_id)
    merged = {**defaults, **payload}
    names = {
        "job": {"uuid": id_text, "execution_id": id_text, "id": id_text},
        "execution_id": id_text,
        "payload": dict(payload),
        "input": dict(payload),
        **(system or {}),
    }
    scope = Scope(load=nothing_loaded, workload=Value(merged), ctx={}, results={}, system=names)
    return {
        name: value if name in payload else _rendered(value, scope, where=f"workload.{name}")
        for name, value in merged.items()
    }


def _rendered(value: Any, scope: Scope, *, where: str) -> Any:
    try:
        return templates.render(value, scope, where=where)
    except TemplateFailed:
        return value
