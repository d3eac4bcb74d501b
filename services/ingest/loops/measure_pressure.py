"""Measure what stands against further starts: routing that is behind, commands that wait longer than their turn."""

import time

from noetl_common.db import Pool
from noetl_common.loop import Loop
from services.ingest import store
from services.ingest.admission import Admission

PAUSE_S = 1.0
UNASKED_PAUSE_S = 10.0  # while nobody starts anything


async def measure_pressure_once(pool: Pool, admission: Admission) -> int:
    """Bring the admission's figures up to date; return 0: the next look is after the pause."""
    admission.lags, admission.due = await store.read_pressure(pool, counted_max=admission.commands_due_max)
    admission.is_asked = False
    return 0


def pressure_loop(pool: Pool, admission: Admission) -> Loop:
    """Return the loop: it measures each second in which a start came, and seldom else."""
    measured_s = -UNASKED_PAUSE_S

    async def once() -> int:
        nonlocal measured_s
        now_s = time.monotonic()
        if admission.is_asked or now_s - measured_s >= UNASKED_PAUSE_S:
            await measure_pressure_once(pool, admission)
            measured_s = now_s
        return 0

    return Loop(name="measure_pressure", once=once, idle_pause_s=PAUSE_S)
