"""Everything at once on one Postgres: shards change hands, connections are cut, claims run out, runs are cancelled."""

from pathlib import Path

import pytest

from noetl_common.db import open_pool
from tests.crowd import Crowd
from tests.integration.test_routing import LOOP, PARENT
from tests.routing import Bench, register_text

RETRIES = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: retries, path: tests/retries}
workflow:
- step: start
  loop: {in: "{{ 3 }}", iterator: n, spec: {mode: parallel}}
  tool:
  - {name: first, kind: noop}
  - name: call
    kind: playbook
    path: nowhere
    spec: {policy: {rules: [
      {when: "{{ _attempt < 3 }}", then: {do: retry, attempts: 3, backoff: fixed, delay: 0.2}},
      {else: {then: {do: continue}}}]}}
  - {name: last, kind: noop}
  next: {arcs: [{step: end}]}
- step: end
  tool: {kind: noop}
"""


async def make_runs(bench: Bench) -> list[int]:
    for text in (LOOP, PARENT, RETRIES):
        await register_text(bench.pool, text)
    runs = [await bench.start("tests/loop", items=200) for _ in range(6)]
    runs += [await bench.start("tests/parent") for _ in range(4)]
    return runs + [await bench.start("tests/retries") for _ in range(8)]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_crowd_loses_nothing_and_does_nothing_twice(dsn: str, tmp_path: Path, seed: int):
    async with (
        open_pool(dsn, size_max=6, name="one") as one,
        open_pool(dsn, size_max=6, name="two") as two,
    ):
        crowd = Crowd([one, two], dsn, tmp_path, seed=seed)
        await crowd.rage(make_runs, for_s=3.0)
        await crowd.check()
        assert crowd.retried > 0
