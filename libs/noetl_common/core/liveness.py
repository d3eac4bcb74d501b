"""Who is dead: a process whose session lock is gone, looked at twice, and not because Postgres itself came up anew."""

from collections.abc import Collection, Mapping

LOOKS_APART_S = 0.3  # a session that broke is back sooner than this
POSTGRES_AGE_MIN_S = 10.0  # a restart takes every session lock away at once: the living need this long to return


def still_missing(since_s: Mapping[str, float], missing: Collection[str], now_s: float) -> dict[str, float]:
    """Return {instance: when its lock was first found missing}, one whose lock is back forgotten."""
    return {instance: since_s.get(instance, now_s) for instance in missing}


def dead(since_s: Mapping[str, float], *, now_s: float, postgres_age_s: float) -> set[str]:
    """Return the instances that are dead by what two looks have seen.

    A hint and no proof: whoever acts on it raises the epoch, so that one who lives after all can write nothing.
    """
    if postgres_age_s < POSTGRES_AGE_MIN_S:
        return set()
    return {instance for instance, first_s in since_s.items() if now_s - first_s >= LOOKS_APART_S}
