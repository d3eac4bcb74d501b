"""Durations, moments and sizes as people read them. Pure."""

from datetime import datetime, tzinfo
from typing import Any

KIB = 1024


def duration(seconds: float) -> str:
    """Return how long something took: `56 ms`, `1.5 s`, `2m 05s`, `1h 02m`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    return f"{minutes // 60}h {minutes % 60:02d}m"


def moment(text: Any, *, zone: tzinfo | None = None, date: bool = True) -> str:
    """Return an RFC 3339 time in `zone` (None: this machine's), to the second; without the date, to the millisecond."""
    if not text:
        return ""
    local = parsed(text).astimezone(zone)
    if date:
        return local.strftime("%Y-%m-%d %H:%M:%S")
    return local.strftime("%H:%M:%S.") + f"{local.microsecond // 1000:03d}"


def parsed(text: Any) -> datetime:
    """Return an RFC 3339 text as a moment."""
    return datetime.fromisoformat(str(text).replace("Z", "+00:00"))


def size(count_bytes: int) -> str:
    """Return a number of bytes: `11 B`, `2.5 KiB`, `10.0 MiB`."""
    if count_bytes < KIB:
        return f"{count_bytes} B"
    if count_bytes < KIB * KIB:
        return f"{count_bytes / KIB:.1f} KiB"
    return f"{count_bytes / KIB**2:.1f} MiB"
