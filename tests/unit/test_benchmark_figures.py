"""How benchmarks come to their figures: medians, statements of a log, shares of the processor time."""

from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.chain import playbook
from benchmarks.cpu import Cpu
from benchmarks.emitting import Emitter, batch_of
from benchmarks.peers.__main__ import PEERS
from benchmarks.report import medians
from benchmarks.statements import count
from noetl_common.core.parse import parse
from noetl_common.errors import Invalid

LOG = b"""<<ingest-background>> LOG:  statement: BEGIN
<<ingest>> LOG:  execute <unnamed>: -- name the rows
\tSELECT 1
<<ingest>> LOG:  execute _pg3_1: UPDATE noetl.command
<<noetl-meta>> LOG:  statement: COMMIT
<<>> LOG:  statement: SELECT what the benchmark asks
<<>> LOG:  checkpoint starting: time
<<ingest>> ERROR:  not a statement
"""


def test_statements_are_counted_for_the_role_that_sent_them() -> None:
    counted = count(LOG, 2.0)
    assert counted.all == {"ingest": 3, "meta": 1}
    assert counted.transaction == {"ingest": 1, "meta": 1}
    assert sum(counted.texts.values()) == 2


def test_several_runs_are_told_as_medians_with_the_least_and_the_greatest() -> None:
    told = medians([{"rate": rate, "cpu": {"ingest": rate / 10}, "note": "last"} for rate in (30.0, 10.0, 20.0)])
    assert told == {"runs": 3, "rate": 20.0, "cpu": {"ingest": 2.0}, "note": "last", "spread": {"rate": [10.0, 30.0]}}


def test_what_drives_the_load_is_no_part_of_what_is_measured() -> None:
    spent = Cpu({"ingest": 30.0, "client": 50.0}, 100.0).since(Cpu({"ingest": 10.0, "client": 10.0}, 20.0))
    assert spent.per(10) == {"client": 4.0, "ingest": 2.0, "all": 2.0}
    assert spent.others() == 0.25


def test_a_chain_is_a_playbook_whose_steps_follow_each_other() -> None:
    parsed, _findings = parse(playbook(3, tool="python", sleep_ms=10))
    assert [[arc.step for arc in step.arcs] for step in parsed.steps.values()] == [["step_1"], ["step_2"], []]


def test_a_chain_longer_than_a_playbook_may_be_is_refused() -> None:
    with pytest.raises(Invalid, match="--steps: expected 1 to"):
        playbook(1_001, tool="noop", sleep_ms=0)


def test_a_batch_holds_chunks_of_several_commands_each_numbered_in_turn() -> None:
    emitters = [Emitter(execution_id=1, command_id=n, claim_token=n, step="s", attempt=1) for n in range(3)]
    batch = batch_of(iter(emitters), 25)
    assert [(report.command_id, report.chunk) for report in batch] == (
        [(0, n) for n in range(10)] + [(1, n) for n in range(10)] + [(2, n) for n in range(5)]
    )


def test_every_system_compared_with_has_its_file() -> None:
    files = {path.stem.removeprefix("peer_") for path in Path(peers.__path__[0]).glob("peer_*.py")}
    assert files == set(PEERS)
