"""What a seed's cluster is asked to do: random playbooks of a fixed catalog, started, cancelled and written to."""

import asyncio
import random
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from noetl_common.core.commands import CommandContext
from noetl_common.core.parse import parse
from noetl_common.core.playbook import Playbook
from noetl_common.errors import NoetlError
from noetl_common.loop import is_expected
from services.ingest.starts import Asked
from tests.simulation.loop import Process
from tests.storms import random_playbook

if TYPE_CHECKING:
    from tests.simulation.world import World

LEAVES, BRANCHES, TREES = 30, 40, 60
STEPS_MAX = {"leaf": 2, "branch": 3, "tree": 5}
RETRY_S = 0.3
RARE = re.compile("delay:|timeout:|concurrency:")  # drawn more often: few playbooks need timers or wait for a place
RARE_WEIGHT = 3


@cache
def catalog() -> tuple[tuple[str, str], ...]:
    """Return (path, document) of every playbook: leaves call nobody, branches leaves, trees both."""
    documents: list[tuple[str, str]] = []
    for kind, count in (("leaf", LEAVES), ("branch", BRANCHES), ("tree", TREES)):
        callable_ = [path for path, _text in documents]
        for number in range(count):
            source = random.Random(f"{kind} {number}")
            path = f"{kind}/{number}"
            children = source.sample(callable_, 2) if callable_ else []
            while True:
                text = random_playbook(source, path=path, children=children)
                if text.count("- step: ") <= STEPS_MAX[kind] and text.count("kind: playbook") <= 3:
                    break
            if kind != "branch" and number % 6 == 0:
                limit = f"executor: {{spec: {{concurrency: {1 + number % 2}}}}}\nworkflow:"
                text = text.replace("workflow:", limit, 1)
            documents.append((path, text))
    return tuple(documents)


@cache
def parsed(content: str) -> tuple[Playbook, Any]:
    """Return what `parse` returns; a version never changes, so one parse will do for all seeds."""
    return parse(content)


class Workload(msgspec.Struct, kw_only=True):
    """The wishes of one seed. Units: `within_s` is when the last run is asked for."""

    paths: list[str]
    failures: float
    cancels: float
    writes: float
    within_s: float

    @classmethod
    def drawn(cls, source: random.Random) -> "Workload":
        """Return the workload that a seed draws."""
        paths = [path for path, text in catalog() for _ in range(RARE_WEIGHT if RARE.search(text) else 1)]
        # Few different ones: runs of one playbook meet in its concurrency group.
        wanted = source.choices(source.choices(paths, k=3), k=source.randint(2, 3))
        return cls(
            paths=wanted,
            failures=source.choice([0.0, 0.0, 0.05, 0.2]),
            cancels=source.choice([0.0, 0.1, 0.4]),
            writes=source.choice([0.0, 0.3]),
            within_s=source.choice([0.5, 2.0, 6.0]),
        )

    def streams(self, context: CommandContext) -> bool:
        """Return whether someone takes the chunks of a command's step."""
        text = dict(catalog())[context.path]
        return any(arc.on_partial for arc in parsed(text)[0].steps[context.step].arcs)


class Client(Process):
    """Who asks: it repeats what is not answered, under the same key, and remembers what it was told."""

    def __init__(self, world: "World") -> None:
        super().__init__(world.loop, "client")
        self.world = world
        self.started: dict[str, int] = {}  # {idempotency key: the run it was told}
        self.waiting = len(world.workload.paths)
        for number, path in enumerate(world.workload.paths):
            self.spawn(self._ask(f"key {number}", path))

    async def _ask(self, key: str, path: str) -> None:
        world = self.world
        await asyncio.sleep(world.random.random() * world.workload.within_s)
        asked = msgspec.json.encode(Asked(path=path, idempotency_key=key))
        answer = msgspec.json.decode(await self._persistently("start", asked, times=world.random.choice([1, 1, 2])))
        self.started[key] = answer["execution_id"]
        self.waiting -= 1
        for method, share in (("cancel", world.workload.cancels), ("write", world.workload.writes)):
            if world.random.random() < share:
                await asyncio.sleep(world.random.random() * 3.0)
                await self._persistently(method, msgspec.json.encode(answer["execution_id"]))

    async def _persistently(self, method: str, body: bytes, *, times: int = 1) -> bytes:
        """Return the answer to a request that is sent until it is answered, and then some."""
        answers: list[bytes] = []
        while len(answers) < times:
            try:
                answers.append(await self.world.network.ask(method, body, is_repeatable=True))
            except NoetlError as error:
                if not is_expected(error):
                    raise
                await asyncio.sleep(RETRY_S)
        told = {msgspec.json.decode(answer)["execution_id"] for answer in answers} if method == "start" else {0}
        if len(told) > 1:
            self.world.violated(f"one key started several runs: {sorted(told)}")
        return answers[-1]
