"""Durations as playbooks write them."""

from typing import Any

UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_in(timeout: Any, default_s: float) -> float:
    """Return a playbook's timeout (30, "30", "30s", "5m", "1h") in seconds; the default when there is none."""
    if isinstance(timeout, int | float) and not isinstance(timeout, bool):
        return float(timeout) if timeout > 0 else default_s
    text = timeout.strip().lower() if isinstance(timeout, str) else ""
    number = text.rstrip("hms ")
    try:
        value = float(number) * UNITS_S[text[len(number) :].strip() or "s"]
    except (ValueError, KeyError):
        return default_s
    return value if value > 0 else default_s
