"""What `executor.spec` says of a whole run: how long it may take, how urgent it is, how many like it may run."""

from typing import Any

from noetl_common.core.checks import Report, kind_of, shown
from noetl_common.core.playbook import Concurrency
from noetl_common.core.yaml_source import Path

PRIORITY_MIN = -100
PRIORITY_MAX = 100
CONCURRENT_RUNS_MAX = 1_000
CONCURRENCY_KEYS = frozenset(("key", "limit"))


def timeout_s_in(spec: dict[str, Any], path: Path, report: Report) -> float | None:
    """Return how many seconds a run may take, None for as long as it takes."""
    for key in ("timeout_s", "timeout_seconds", "timeout"):
        value = spec.get(key)
        if value is None:
            continue
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return float(value)
        report.error((*path, key), f"{key}: expected a number of seconds above 0, found {shown(value)}")
    return None


def priority_in(spec: dict[str, Any], path: Path, report: Report) -> int | None:
    """Return the priority that a run or a step asks for, None when it asks for none."""
    value = spec.get("priority")
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not PRIORITY_MIN <= value <= PRIORITY_MAX:
        expected = f"expected a whole number from {PRIORITY_MIN} to {PRIORITY_MAX}"
        report.error((*path, "priority"), f"priority: {expected}, found {shown(value)}")
        return None
    return value


def concurrency_in(spec: dict[str, Any], path: Path, report: Report) -> Concurrency | None:
    """Return how many runs of the playbook may go on at a time, None for any number."""
    written, path = spec.get("concurrency"), (*path, "concurrency")
    if written is None:
        return None
    if isinstance(written, int) and not isinstance(written, bool):
        written = {"limit": written}
    if not isinstance(written, dict):
        report.error(path, f"concurrency: expected a limit, or {{key, limit}}, found {kind_of(written)}")
        return None
    report.unknown_keys(written, CONCURRENCY_KEYS, path, what="concurrency")
    limit, key = written.get("limit"), written.get("key")
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= CONCURRENT_RUNS_MAX:
        expected = f"limit: expected a whole number from 1 to {CONCURRENT_RUNS_MAX}"
        report.error((*path, "limit"), f"{expected}, found {shown(limit)}")
        return None
    if key is not None and (not isinstance(key, (str, int)) or isinstance(key, bool) or key == ""):
        report.error((*path, "key"), f"key: expected a text, or a template over the workload, found {shown(key)}")
        return None
    return Concurrency(limit=limit, key=key)
