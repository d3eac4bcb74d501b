"""The lineage of results as a tree: each result, and below it what it was made from."""

from collections.abc import Iterator
from typing import Any

from noetl_cli import human

DEPTH_SHOWN_MAX = 200  # deeper lines would be all indentation
DIGEST_CHARACTERS = 12
Key = tuple[str, str]


def tree_lines(chain: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the tree; a result that was shown before is named once more, without what is below it."""
    known: dict[Key, dict[str, Any]] = {(link["execution_id"], link["ref_id"]): link for link in chain}
    loops: dict[Key, list[Key]] = {}
    for key, link in known.items():
        if link["loop_epoch"]:
            loops.setdefault((link["execution_id"], link["loop_epoch"]), []).append(key)
    made = {key: list(_sources(link, known, loops)) for key, link in known.items()}
    own = {source for sources in made.values() for source in sources}
    # Of the step's own results, those first that no other one of them was made from.
    starts = [key for key, link in known.items() if link["depth"] == 0 and key not in own]
    shown: set[Key] = set()
    home = chain[0]["execution_id"] if chain and not starts else (known[starts[0]]["execution_id"] if starts else "")
    # Without recursion: a chain may be longer than the stack is deep.
    waiting = [(key, 0) for key in reversed(starts)]
    while waiting:
        key, depth = waiting.pop()
        again = key in shown
        yield _line(known[key], depth, home=home, again=again and bool(made[key]))
        if again:
            continue
        shown.add(key)
        waiting += [(source, depth + 1) for source in reversed(made[key])]


def _sources(link: dict[str, Any], known: dict[Key, Any], loops: dict[Key, list[Key]]) -> Iterator[Key]:
    for source in link["made_from"]:
        if "loop_epoch" in source:
            yield from loops.get((source["execution_id"], source["loop_epoch"]), ())
        elif (source["execution_id"], source["ref_id"]) in known:
            yield source["execution_id"], source["ref_id"]


def _line(link: dict[str, Any], depth: int, *, home: str, again: bool) -> str:
    index = f"[{link['iter_index']}]" if link["iter_index"] is not None else ""
    label = link["source_step"] if link["name"] == link["source_step"] else f"{link['source_step']}.{link['name']}"
    size = human.size(int(link["bytes"] or 0))
    place = f"  run {link['execution_id']}" if link["execution_id"] != home else ""
    digest = str(link["sha256"] or "")[:DIGEST_CHARACTERS]
    more = "  (see above)" if again else ""
    return f"{'  ' * min(depth, DEPTH_SHOWN_MAX)}{label}{index}  {size}  {link['store']}  {digest}{place}{more}"
