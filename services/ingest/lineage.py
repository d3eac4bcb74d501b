"""The lineage of a step's results: what they were made from, across steps, loops and runs, live or folded."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from noetl_common.db import Pool
from services.ingest import store_lineage, store_manifests

RUNS_MAX = 100  # of one walk
DEPTH_MAX = 100_000

Key = tuple[int, int]  # (execution id, reference id)
Wanted = tuple[int, int, int]  # (execution id, reference id, loop epoch: all of its items instead)


class Node(msgspec.Struct, kw_only=True):
    """One result, and what it was made from. `row`: all of it, when it is at hand."""

    step: str
    loop_epoch: int
    created_at: datetime
    sources: list[Wanted]
    row: dict[str, Any] | None = None


class Run(msgspec.Struct, kw_only=True):
    """The results of one run: by reference id, the items of each loop, results of children by step."""

    nodes: dict[int, Node]
    loops: dict[int, list[int]]
    links: dict[str, list[Wanted]]


class Lineage(msgspec.Struct, kw_only=True):
    """A page of a walk. `depths` {(execution, result): steps from what was asked for}; `is_whole`: no run was left out.

    Shapes: `rows` as the trace shows them, oldest first, with `execution_id` and `sources`.
    """

    rows: list[dict[str, Any]]
    depths: dict[Key, int]
    has_more: bool
    is_whole: bool


class Walk:
    """One walk; reads each run that it comes to once."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._runs: dict[int, Run] = {}
        self.is_whole = True

    async def trace(
        self, execution_id: int, step: str, *, depth: int = DEPTH_MAX, after: Key | None = None, limit: int
    ) -> Lineage:
        """Return a page of the results of a step with all they descend from, up to `depth` steps back."""
        run = await self._run(execution_id)
        assert run is not None
        roots: list[Wanted] = [(execution_id, ref_id, 0) for ref_id, node in run.nodes.items() if node.step == step]
        depths = await self._depths([*roots, *run.links.get(step, [])], depth)
        ordered = sorted(depths, key=lambda key: (self._node(key).created_at, *key))
        first = ordered.index(after) + 1 if after in depths else 0
        page = ordered[first : first + limit]
        rows = await self._rows(page)
        return Lineage(rows=rows, depths=depths, has_more=first + limit < len(ordered), is_whole=self.is_whole)

    async def _depths(self, roots: Iterable[Wanted], depth: int) -> dict[Key, int]:
        """Return how far back each result stands, nearest way; breadth first."""
        depths: dict[Key, int] = {}
        frontier = await self._resolved(roots)
        level = 0
        while frontier and level <= depth:
            fresh = [key for key in dict.fromkeys(frontier) if key not in depths]
            depths.update(dict.fromkeys(fresh, level))
            frontier = await self._resolved(source for key in fresh for source in self._node(key).sources)
            level += 1
        return depths

    async def _resolved(self, wanted: Iterable[Wanted]) -> list[Key]:
        """Return the results that exist of those named; a loop's are those of its items."""
        found: list[Key] = []
        for execution_id, ref_id, epoch in wanted:
            run = await self._run(execution_id)
            if run is None:
                continue
            if epoch:
                found += [(execution_id, item) for item in run.loops.get(epoch, ())]
            elif ref_id in run.nodes:
                found.append((execution_id, ref_id))
        return found

    async def _rows(self, page: list[Key]) -> list[dict[str, Any]]:
        missing: dict[int, list[int]] = {}
        for execution_id, ref_id in page:
            if self._node((execution_id, ref_id)).row is None:
                missing.setdefault(execution_id, []).append(ref_id)
        for execution_id, ref_ids in missing.items():
            for row in await store_lineage.read_traced(self._pool, execution_id, ref_ids):
                self._node((execution_id, row["ref_id"])).row = row
        rows = []
        for key in page:
            node = self._node(key)
            if node.row is not None:  # deleted meanwhile
                rows.append({**node.row, "execution_id": key[0], "sources": node.sources})
        return rows

    def _node(self, key: Key) -> Node:
        return self._runs[key[0]].nodes[key[1]]

    async def _run(self, execution_id: int) -> Run | None:
        run = self._runs.get(execution_id)
        if run is None:
            if len(self._runs) >= RUNS_MAX:
                self.is_whole = False
                return None
            run = self._runs[execution_id] = await self._read(execution_id)
        return run

    async def _read(self, execution_id: int) -> Run:
        # The manifest's row is the switch: what the log still holds of a folded run is not asked.
        if await store_manifests.find_compacted(self._pool, [execution_id]):
            rows, links = await store_manifests.read_traced(self._pool, execution_id)
        else:
            rows, links = await store_lineage.read_edges(self._pool, execution_id)
        run = Run(nodes={}, loops={}, links=links)
        for row in rows:
            before = [(execution_id, row["parent_ref_id"], 0)] if row["parent_ref_id"] else []
            given = [(int(one[0]), int(one[1]), int(one[2])) for one in row["inputs"] or ()]
            run.nodes[row["ref_id"]] = Node(
                step=row["step"],
                loop_epoch=row["loop_epoch"],
                created_at=row["created_at"],
                sources=[*before, *sorted(given)],
                row=row if "ref" in row else None,
            )
            if row["loop_epoch"]:
                run.loops.setdefault(row["loop_epoch"], []).append(row["ref_id"])
        return run
