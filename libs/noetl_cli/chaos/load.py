"""The mixed load: which run comes next, and what it must come to, told by arithmetic and not by the runtime."""

import random
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any

import msgspec

PREFIX = "chaos/"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run to be started. `notes`: the (step, number) pairs that its tools write into the ledger."""

    name: str
    kind: str
    items: int
    status: str = "COMPLETED"
    result: Any = None
    notes: frozenset[tuple[str, int]] = frozenset()


Expected = Callable[[int], dict[str, Any]]
Range = tuple[int, int]


def _notes(step: str, items: int) -> frozenset[tuple[str, int]]:
    return frozenset((step, n) for n in range(items))


def _sum(items: int) -> int:
    return items * (items - 1) // 2


# {playbook: (how often it is drawn, how many items it has, what it must come to)}
KINDS: dict[str, tuple[int, Range, Expected]] = {
    "items": (
        6,
        (50, 300),
        lambda n: {
            "result": {"count": n, "sum": sum(i * i for i in range(n))},
            "notes": _notes("start", n),
        },
    ),
    "fanout": (3, (10, 60), lambda n: {"result": {"count": n, "sum": _sum(n)}, "notes": _notes("start", n)}),
    "join": (
        3,
        (1, 9),
        lambda n: {"result": {"sum": 3 * n}, "notes": frozenset((s, 0) for s in ("left", "middle", "right", "add"))},
    ),
    "parent": (3, (2, 12), lambda n: {"result": {"count": n, "sum": _sum(n)}, "notes": _notes("child", n)}),
    "retry": (
        3,
        (2, 8),
        lambda n: {"result": {"count": n}, "notes": _notes("round", n) | {("start", 0)}},
    ),
    "large": (2, (2, 8), lambda n: {"result": {"count": n, "sum": 20_000 * n}, "notes": _notes("each", n)}),
    "once": (
        4,
        (20, 80),
        lambda n: {"result": {"count": n, "different": n}, "notes": _notes("start", n)},
    ),
    "cancelled": (1, (1, 3), lambda n: {"status": "CANCELLED"}),
    "failing": (1, (2, 9), lambda n: {"status": "FAILED"}),
}


def documents() -> dict[str, str]:
    """Return {name: text} of every playbook of the load."""
    folder = resources.files("noetl_cli.chaos") / "playbooks"
    return {file.name.removesuffix(".yaml"): file.read_text(encoding="utf-8") for file in folder.iterdir()}


def runs(seed: int) -> Iterator[Run]:
    """Yield runs without end, the same for the same seed."""
    dice = random.Random(f"load {seed}")
    names = list(KINDS)
    number = 0
    while True:
        (kind,) = dice.choices(names, [KINDS[name][0] for name in names])
        _weight, (least, most), expected = KINDS[kind]
        items = dice.randint(least, most)
        yield Run(name=f"{seed}-{number}", kind=kind, items=items, **expected(items))
        number += 1
