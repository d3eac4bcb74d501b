"""Judge single rows that queries found suspicious: say what was expected and what was found. Pure."""

from typing import Any

from noetl_common.core.shard import last_id, ord_in, seq_in
from noetl_common.verify.report import Finding

Row = dict[str, Any]


def cursors(row: Row) -> list[Finding]:
    """Judge how far a shard is: {shard_id, routed_seq, head_seq, projected}."""
    shard_id, routed, head, projected = row["shard_id"], row["routed_seq"], row["head_seq"], row["projected"]
    found: list[Finding] = []
    if routed > head:
        expected = f"a cursor up to the head, {head}"
        found.append(Finding(check="log.cursors", shard_id=shard_id, expected=expected, found=f"{routed}"))
    if projected > last_id(shard_id, routed):
        expected = f"a projection up to the cursor, {routed}"
        found.append(Finding(check="log.cursors", shard_id=shard_id, expected=expected, found=f"{seq_in(projected)}"))
    return found


def misplaced(row: Row, *, head: int) -> Finding:
    """Judge an event that does not follow the one before it: {shard_id, event_id, execution_id, before, run_before}.

    The event behind the head stands for the end of the log; its execution id is 0.
    """
    shard_id, event_id, before = row["shard_id"], row["event_id"], row["before"]
    seq = seq_in(before) if before is not None else 0
    if ord_in(event_id) == 0:
        if row["execution_id"] == 0:
            found, event_id = f"the last one is {seq}", 0
        else:
            found = f"behind {seq} comes {seq_in(event_id)}"
        missing = f"{seq + 1}" if seq_in(event_id) == seq + 2 else f"{seq + 1} to {seq_in(event_id) - 1}"
        expected = f"inputs 1 to {head}" + (f", {missing} too" if seq_in(event_id) > seq + 1 else ", each once")
        return Finding(check="log.sequence", shard_id=shard_id, event_id=event_id, expected=expected, found=found)
    where = {"shard_id": shard_id, "event_id": event_id, "execution_id": row["execution_id"]}
    if seq != seq_in(event_id):
        expected = f"input {seq_in(event_id)} before what was drawn from it"
        return Finding(check="log.consequences", expected=expected, found=f"nothing behind input {seq}", **where)
    if ord_in(event_id) != ord_in(before) + 1:
        expected = f"consequence {ord_in(before) + 1} of input {seq}"
        return Finding(check="log.consequences", expected=expected, found=f"consequence {ord_in(event_id)}", **where)
    expected = f"a consequence in run {row['run_before']}, as its cause"
    return Finding(check="log.consequences", expected=expected, found=f"run {row['execution_id']}", **where)


def command(row: Row) -> Finding:
    """Judge a command whose row and events do not fit.

    Shapes: {execution_id, command_id, shard_id, step, issued, ended, how, event_id, status, is_over}; `how` is the
    event that ended it, `status` is None without a row.
    """
    step = f" of step {row['step']!r}" if row["step"] else ""
    name = f"command {row['command_id']}{step}"

    def finding(check: str, expected: str, found: str) -> Finding:
        return Finding(
            check=check,
            shard_id=row["shard_id"],
            execution_id=row["execution_id"],
            event_id=row["event_id"] or 0,
            expected=f"{name}: {expected}",
            found=found,
        )

    issued, ended = row["issued"] or 0, row["ended"] or 0
    if issued != 1:
        return finding("commands.issued", "one command.issued", f"{issued}")
    if ended > 1:
        return finding("commands.ended", "one end", f"{ended}")
    if row["status"] is None:
        return finding("commands.issued", "a row in noetl.command", "none")
    if ended == 0 and row["status"] not in ("pending", "claimed"):
        return finding("commands.ended", f"an event that ends it, as its row is {row['status']}", "none")
    if ended == 0:
        return finding("commands.ended", "an end, as its run is over", f"none, and its row is {row['status']}")
    return finding("commands.row", f"status {row['how'].removeprefix('command.')}", f"status {row['status']}")


def reference(row: Row) -> Finding:
    """Judge a reference: {execution_id, shard_id, event_id, ref, bytes, sha256, row_bytes, row_sha256}."""
    where = {name: row[name] for name in ("shard_id", "execution_id", "event_id")}
    if row["row_sha256"] is None:
        return Finding(
            check="references.row", reference=row["ref"], expected="a row of the result", found="none", **where
        )
    return Finding(
        check="references.agree",
        reference=row["ref"],
        expected=f"{row['bytes']} bytes, sha256 {row['sha256']}",
        found=f"a row with {row['row_bytes']} bytes, sha256 {row['row_sha256']}",
        **where,
    )


def parent(row: Row) -> Finding:
    """Judge a result whose parent is not there: {execution_id, shard_id, ref, parent_ref_id}."""
    return Finding(
        check="lineage.parent",
        shard_id=row["shard_id"],
        execution_id=row["execution_id"],
        reference=row["ref"],
        expected=f"result {row['parent_ref_id']}, which it came from",
        found="none",
    )


def cycle(row: Row) -> Finding:
    """Judge results that come from themselves: {execution_id, shard_id, ref, results}; `ref` is the first of them."""
    return Finding(
        check="lineage.cycle",
        shard_id=row["shard_id"],
        execution_id=row["execution_id"],
        reference=row["ref"],
        expected="a chain that ends",
        found=f"a circle with {row['results']} results in or behind it",
    )


def timer(row: Row) -> Finding:
    """Judge a timer of a run that is over: {execution_id, shard_id, timer_id, kind, cause_event_id}."""
    return Finding(
        check="timers.left",
        shard_id=row["shard_id"],
        execution_id=row["execution_id"],
        event_id=row["cause_event_id"],
        expected="no timer, as the run is over",
        found=f"timer {row['timer_id']} ({row['kind']})",
    )


def place(row: Row) -> Finding:
    """Judge a place in a concurrency group.

    Shapes: {execution_id, shard_id, key, run_limit, places, is_held, is_admitted, is_over}; `is_held` is what the table
    says, `is_admitted` and `is_over` what the log does, `places` how many the group has given.
    """
    if row["is_over"]:
        expected, found = "no place, as the run is over", "one, or its turn in line"
    elif row["is_held"] != row["is_admitted"]:
        said = "admitted" if row["is_admitted"] else "not admitted"
        expected, found = f"as the log says: {said}", "a place" if row["is_held"] else "a turn in line"
    else:
        expected, found = f"at most {row['run_limit']} places", str(row["places"])
    return Finding(
        check="places.held",
        shard_id=row["shard_id"],
        execution_id=row["execution_id"],
        expected=f"group of key {row['key']!r}: {expected}",
        found=found,
    )


def unmatched(row: Row) -> Finding:
    """Judge a folded run without a manifest, or the opposite: {execution_id, shard_id, has_manifest}."""
    return Finding(
        check="manifests.row",
        shard_id=row["shard_id"],
        execution_id=row["execution_id"],
        expected="no manifest, as the run is not folded" if row["has_manifest"] else "a manifest of the folded run",
        found="one" if row["has_manifest"] else "none",
    )


def untraced(row: Row) -> Finding:
    """Judge a reference in the history of a folded run: {execution_id, shard_id, event_id, ref}."""
    return Finding(
        check="manifests.references",
        shard_id=row["shard_id"],
        execution_id=row["execution_id"],
        event_id=row["event_id"],
        reference=row["ref"],
        expected="the result in a manifest, or its row",
        found="none",
    )
