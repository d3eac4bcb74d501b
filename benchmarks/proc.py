"""What /proc says of processor time, in nothing but the standard library: peers' own environments import it, too."""

import os
from pathlib import Path

TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


def family_ms(pid: int) -> float:
    """Return ms of a process, of its children that have ended, and of all that live below it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        children = [
            int(child)
            for thread in Path(f"/proc/{pid}/task").iterdir()
            for child in (thread / "children").read_text(encoding="utf-8").split()
        ]
    except OSError:
        return 0.0
    # utime, stime, cutime, cstime: fields 14 to 17 of the line, the state is the third.
    return sum(int(field) for field in fields[11:15]) * TICK_MS + sum(family_ms(child) for child in children)


def machine_ms() -> float:
    """Return ms that all cores together were busy."""
    try:
        first = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()
    except OSError:
        return 0.0
    user, nice, system, _idle, _wait, irq, soft = (int(field) for field in first[1:8])
    return (user + nice + system + irq + soft) * TICK_MS
