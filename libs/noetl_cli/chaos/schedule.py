"""The faults of a run, drawn from its seed before anything starts."""

import random
from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import msgspec

Kind = Literal["kill", "stop", "pause", "kill_nats", "pause_nats", "restart_postgres", "cut", "stall", "slow"]

# How often each is drawn, and for how long it lasts (seconds; the lease of a shard is 4 s, that of a command 15 s).
WEIGHTS: dict[Kind, int] = {
    "kill": 40,
    "stop": 6,
    "pause": 22,
    "kill_nats": 4,
    "pause_nats": 3,
    "restart_postgres": 1,
    "cut": 12,
    "stall": 8,
    "slow": 4,
}
LASTING_S: dict[Kind, tuple[float, float]] = {
    "pause": (0.5, 7.0),
    "pause_nats": (0.5, 5.0),
    "cut": (0.2, 6.0),
    "stall": (0.5, 7.0),
    "slow": (2.0, 8.0),
}
LONG_PAUSE_SHARE, LONG_PAUSE_S = 0.1, (16.0, 20.0)  # of workers: beyond the lease of their commands
POSTGRES_REST_S = 30.0
ON_LINKS = frozenset(("cut", "stall", "slow"))
ON_ROLES = frozenset(("kill", "stop", "pause"))


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault: when, counted from the beginning, on which process or link, for how long. Units: seconds."""

    at_s: float
    kind: Kind
    target: str = ""
    lasts_s: float = 0.0


def faults(seed: int, *, seconds: float, every_s: float, roles: Sequence[str], links: Sequence[str]) -> Iterator[Fault]:
    """Yield the faults of `seconds`, on average one each `every_s`; the same for the same arguments.

    Of all links, those of one process to one server are as likely as any other; Postgres rests between two restarts.
    """
    dice = random.Random(seed)
    kinds = list(get_args(Kind))
    at_s, postgres_at_s = 0.0, 0.0
    while True:
        at_s += dice.uniform(0.4, 1.6) * every_s
        if at_s >= seconds:
            return
        (kind,) = dice.choices(kinds, [WEIGHTS[kind] for kind in kinds])
        if kind == "restart_postgres":
            if at_s < postgres_at_s:
                kind = "kill"
            else:
                postgres_at_s = at_s + POSTGRES_REST_S
        target = dice.choice(roles) if kind in ON_ROLES else dice.choice(links) if kind in ON_LINKS else ""
        lasts_s = dice.uniform(*LASTING_S[kind]) if kind in LASTING_S else 0.0
        if kind == "pause" and target.startswith("worker") and dice.random() < LONG_PAUSE_SHARE:
            lasts_s = dice.uniform(*LONG_PAUSE_S)
        yield Fault(at_s=round(at_s, 3), kind=kind, target=target, lasts_s=round(lasts_s, 3))
