"""The tree of `noetl trace`: each result above what it was made from, across loops and runs."""

from typing import Any

from noetl_cli.lineage_view import tree_lines


def link(ref_id: int, *, depth: int = 0, run: int = 1, **fields: Any) -> dict[str, Any]:
    step = fields.pop("step", f"s{ref_id}")
    made_from = [{"execution_id": str(run), "ref_id": str(source)} for source in fields.pop("sources", ())]
    given = {
        "execution_id": str(run),
        "ref_id": str(ref_id),
        "depth": depth,
        "source_step": step,
        "name": step,
        "loop_epoch": None,
        "iter_index": None,
        "bytes": 10,
        "store": "db",
        "sha256": "abc",
        "made_from": made_from,
    }
    return {**given, **fields}


def shown(*chain: dict[str, Any]) -> list[str]:
    return [line.split("  10 B")[0] for line in tree_lines(list(chain))]


def test_what_a_result_was_made_from_stands_below_it() -> None:
    assert shown(link(1, depth=2), link(2, depth=1, sources=[1]), link(3, sources=[2])) == ["s3", "  s2", "    s1"]


def test_what_was_shown_before_is_named_once_more_without_what_is_below_it() -> None:
    chain = [link(1, depth=3), link(2, depth=2, sources=[1]), link(3, depth=1, sources=[2]), link(4, sources=[3, 2])]
    lines = list(tree_lines(chain))
    assert [line.strip().split()[0] for line in lines] == ["s4", "s3", "s2", "s1", "s2"]
    assert "(see above)" in lines[-1]


def test_the_items_of_a_loop_stand_below_what_read_the_loop() -> None:
    items = [link(n, depth=1, step="many", loop_epoch="9", iter_index=n) for n in range(2)]
    reader = link(7, made_from=[{"execution_id": "1", "loop_epoch": "9"}])
    assert shown(*items, reader) == ["s7", "  many[0]", "  many[1]"]


def test_a_result_of_another_run_says_so() -> None:
    made_from = [{"execution_id": "2", "ref_id": "5"}]
    lines = list(tree_lines([link(5, depth=1, run=2), link(6, made_from=made_from)]))
    assert "run 2" in lines[1] and "run" not in lines[0]


def test_a_chain_of_five_thousand_results_is_shown() -> None:
    chain = [link(n, depth=5000 - n, sources=[n - 1] if n > 1 else []) for n in range(1, 5001)]
    assert len(list(tree_lines(chain))) == 5000
