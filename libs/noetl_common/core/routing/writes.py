"""Variables: render a `set` block, and write what it gives into the execution."""

from collections.abc import Mapping
from typing import Any

import msgspec

from noetl_common.core import templates
from noetl_common.core.policy import target_of
from noetl_common.core.routing.draft import Draft
from noetl_common.core.scope import Scope


def write_variables(draft: Draft, sets: Mapping[str, Any], scope: Scope, *, step: str, where: str) -> None:
    """Render a `set` block against `scope` and write it as variables; its names do not see each other."""
    if not sets:
        return
    write_rendered(draft, render_variables(sets, scope, where=where), step=step)


def render_variables(sets: Mapping[str, Any], scope: Scope, *, where: str) -> dict[str, Any]:
    """Return the values of a `set` block, its keys as written."""
    return {name: templates.render(value, scope, where=f"{where} {name}") for name, value in sets.items()}


def write_rendered(draft: Draft, sets: Mapping[str, Any], *, step: str) -> None:
    """Write values as variables of the execution."""
    if not sets:
        return
    rendered = {target_of(name)[1]: value for name, value in sets.items()}
    values = {name: draft.value(value, label=f"ctx.{name}") for name, value in rendered.items()}
    draft.emit("ctx.updated", step=step, context={"set": msgspec.to_builtins(values)})
