"""Measure what stands against further starts: routing that is behind, commands that wait longer than their turn."""

from noetl_common.db import Pool
from noetl_common.loop import Loop
from services.ingest import store
from services.ingest.admission import Admission

PAUSE_S = 1.0


async def measure_pressure_once(pool: Pool, admission: Admission) -> int:
    """Bring the admission's figures up to date; return 0: the next look is after the pause."""
    admission.lags, admission.due = await store.read_pressure(pool, counted_max=admission.commands_due_max)
    return 0


def pressure_loop(pool: Pool, admission: Admission) -> Loop:
    """Return the loop."""
    return Loop(name="measure_pressure", once=lambda: measure_pressure_once(pool, admission), idle_pause_s=PAUSE_S)
