"""The clock as a seam: real time, or a test's."""

import time
from typing import Protocol


class Clock(Protocol):
    """What the shells ask the time of; the core gets time as an argument."""

    def unix_ms(self) -> int:
        """Return milliseconds since 1970."""

    def monotonic_s(self) -> float:
        """Return seconds that never go back, comparable only within this process."""


class SystemClock:
    """The machine's clock."""

    def unix_ms(self) -> int:
        """Return milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()
