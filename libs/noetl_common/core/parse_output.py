"""`output` of a step: which fields of its result stay at hand, and which tier keeps it."""

from typing import Any

from noetl_common.core.checks import Report, is_word, listed, meant, shown
from noetl_common.core.playbook import Output
from noetl_common.core.values import STORE_KINDS
from noetl_common.core.yaml_source import Path

SELECT_MAX = 50
OUTPUT_KEYS = frozenset(("store", "select", "output_select", "inline_max_bytes", "preview_max_bytes", "scope", "ttl"))
_STORE_KEYS = frozenset(("kind", "ttl", "compression", "credential"))
_HONOURED = frozenset(("store", "select", "output_select"))
# Kinds of other engines that leave nothing to choose here.
_DEFAULT_KINDS = {
    "memory": "results outlive the process that made them",
    "db": "those up to 8 KiB stand in the database anyway",
}


class Outputs:
    """Reads what the steps of one document say of their results."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def read(self, fields: dict[str, Any], path: Path, *, is_pipeline: bool) -> Output | None:
        """Return what a step says, None when that is nothing. A single tool may say it in its step's place."""
        tool = fields.get("tool")
        own = tool if isinstance(tool, dict) else {}
        for index, item in enumerate(tool if isinstance(tool, list) else ()):
            for key in ("output", "output_select"):
                if isinstance(item, dict) and key in item:
                    message = f"{key} of a task in a pipeline is ignored: only the step's result is stored"
                    self._report.warn((*path, "tool", index, key), message, hint="write output at the step")
        select: list[str] = []
        store = ""
        for block, place in ((own, (*path, "tool")), (fields, path)):
            output = self._report.mapping(block.get("output"), (*place, "output"), "output")
            self._check_keys(output, (*place, "output"))
            for key, where in (("select", output), ("output_select", output), ("output_select", block)):
                select += self._select(where.get(key), (*place, key))
            store = self._store(output.get("store"), (*place, "output", "store")) or store
        if select and is_pipeline:
            message = "select keeps fields of a single tool's result at hand; a pipeline's is read whole"
            self._report.warn((*path, "output"), message)
        if not select and not store:
            return None
        return Output(select=tuple(dict.fromkeys(select[:SELECT_MAX])), store=store)

    def _check_keys(self, output: dict[str, Any], path: Path) -> None:
        self._report.unknown_keys(output, OUTPUT_KEYS, path, what="output")
        for key in sorted(output.keys() & OUTPUT_KEYS - _HONOURED):
            message = f"{key} is ignored: results up to 8 KiB stand in the database, larger ones in a tier"
            self._report.warn((*path, key), message)

    def _select(self, written: Any, path: Path) -> list[str]:
        found: list[str] = []
        for index, field in enumerate(self._report.listing(written, path, "the fields to select")):
            name = field.get("path") if isinstance(field, dict) else field
            if not isinstance(name, str) or not name:
                message = f"expected the name of a field of the result, found {shown(name)}"
                self._report.error((*path, index), message)
                continue
            top = name.removeprefix("$.").partition(".")[0].partition("[")[0]
            if top != name.removeprefix("$."):
                message = f"only fields at the top of a result are selected: {top!r} is, for {name!r}"
                self._report.warn((*path, index), message)
            found.append(top)
        if len(found) > SELECT_MAX:
            self._report.error(path, f"expected at most {SELECT_MAX} fields to select, found {len(found)}")
        return found

    def _store(self, written: Any, path: Path) -> str:
        fields = {"kind": written} if isinstance(written, str) else self._report.mapping(written, path, "store")
        self._report.unknown_keys(fields, _STORE_KEYS, path, what="store")
        kind = fields.get("kind", "auto")
        if not is_word(kind, STORE_KINDS):
            message = f"expected one of {listed(STORE_KINDS)}, found {shown(kind)}"
            self._report.error((*path, "kind"), message, hint=meant(str(kind), STORE_KINDS))
            return ""
        if kind in _DEFAULT_KINDS:
            message = f"store {kind!r} is read as auto: {_DEFAULT_KINDS[kind]}, larger ones in the default tier"
            self._report.warn((*path, "kind"), message)
        if kind == "auto" or kind in _DEFAULT_KINDS:
            return ""
        return "disk" if kind == "object" else str(kind)
