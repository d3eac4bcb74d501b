"""Concurrency groups: which runs of a playbook count together, and how many of them may go on at a time."""

from collections.abc import Mapping
from typing import Any

import msgspec

from noetl_common.core import templates
from noetl_common.core.playbook import Playbook
from noetl_common.core.scope import Scope, nothing_loaded
from noetl_common.core.shard import hashed_id
from noetl_common.core.values import Value
from noetl_common.errors import TemplateFailed

KEY_CHARACTERS_MAX = 200


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The group that a run belongs to: the runs of its playbook with the same key. `limit` is the run's own."""

    group_id: int
    key: str
    limit: int


def group_of(playbook: Playbook, workload: Mapping[str, Any], *, path: str, system: Mapping[str, Any]) -> Group | None:
    """Return the group of a run that starts with this workload, None when any number of runs may go on.

    `path` is that of the catalog: versions of a playbook count together. Errors: TemplateFailed.
    """
    asked = playbook.concurrency
    if asked is None:
        return None
    where = "executor.spec.concurrency.key"
    scope = Scope(load=nothing_loaded, workload=Value(dict(workload)), ctx={}, results={}, system=system)
    key = "" if asked.key is None else templates.render(asked.key, scope, where=where)
    if not isinstance(key, str | int | float):
        found = "null" if key is None else type(key).__name__
        message = f"expected a text or a number, found {found}"
        raise TemplateFailed(message, expression=str(asked.key), where=where)
    key = str(key)
    if len(key) > KEY_CHARACTERS_MAX:
        message = f"expected at most {KEY_CHARACTERS_MAX} characters, found {len(key)}"
        raise TemplateFailed(message, expression=str(asked.key), where=where)
    return Group(group_id=hashed_id("concurrency", path, key), key=key, limit=asked.limit)
