"""Scope: which value a name in a template has, found when the template reads it."""

from collections.abc import Callable, Mapping
from typing import Any

from noetl_common.core.results import value_view, view
from noetl_common.core.values import Ref, Value
from noetl_common.core.views import LazyMapping, Load, NeedPayload, View, plain

__all__ = ["Load", "NeedPayload", "Scope", "nothing_loaded", "system_names"]

# No playbook may shadow what identifies the run.
PROTECTED = ("execution_id", "catalog_id", "job")


def nothing_loaded(ref: Ref, key: str | None) -> Any:
    """Stand for loading where values name no payloads, such as a workload before its run begins."""
    raise AssertionError("a workload names no payloads")


class Scope:
    """The names that a template sees.

    Precedence: protected system names > locals > iteration > ctx > results > workload > system. The namespaces
    `ctx`, `workload`, `iter` and `steps` stand right behind the locals. `iteration` holds what `iter` shows: the
    item under the iterator's name, `_index`, `_total`, and what rules set. Any value given may be a `Value`.
    """

    def __init__(
        self,
        *,
        load: Load,
        workload: Value,
        ctx: Mapping[str, Value],
        results: Mapping[str, Ref],
        system: Mapping[str, Any] = {},
        iteration: Mapping[str, Any] = {},
        locals: Mapping[str, Any] = {},
    ) -> None:
        self._load = load
        self._workload = workload
        self._ctx = ctx
        self._results = results
        self._system = system
        self._iteration = iteration
        self._locals = locals

    def extended(self, *, locals: Mapping[str, Any] = {}, iteration: Mapping[str, Any] = {}) -> "Scope":
        """Return a scope that sees more locals or iteration values; this one stays as it is."""
        return Scope(
            load=self._load,
            workload=self._workload,
            ctx=self._ctx,
            results=self._results,
            system=self._system,
            iteration={**self._iteration, **iteration} if iteration else self._iteration,
            locals={**self._locals, **locals} if locals else self._locals,
        )

    def lookup(self, name: str) -> Any:
        """Return the value of a name. Errors: KeyError when nobody knows it, NeedPayload when it must be loaded."""
        if name in PROTECTED and name in self._system:
            return self._system[name]
        if name in self._locals:
            return self._value(self._locals[name])
        namespace = self._namespace(name)
        if namespace is not None:
            return namespace
        if name in self._iteration:
            return self._value(self._iteration[name])
        if name == "loop_index" and "_index" in self._iteration:
            return self._iteration["_index"]
        return self._execution_name(name)

    def as_mapping(self) -> Mapping[str, Any]:
        """Return every visible name as a mapping of plain values, each made when it is read."""
        return LazyMapping(self._visible, lambda name: plain(self.lookup(name)))

    def stored(self, name: str) -> Ref | None:
        """Return the reference of a step's result, by the step's name or the reference's URI; None when unknown."""
        return self._results.get(name) or next((ref for ref in self._results.values() if ref.uri == name), None)

    def result(self, ref: Ref) -> Any:
        """Return a stored result as templates see it, plain. Errors: NeedPayload."""
        return plain(view(ref, self._load))

    def _execution_name(self, name: str) -> Any:
        if name in self._ctx:
            return self._value(self._ctx[name])
        if name in self._results:
            return view(self._results[name], self._load)
        try:
            return self._workload_key(name)
        except KeyError:
            return self._value(self._system[name])

    def _namespace(self, name: str) -> Any:
        if name == "ctx":
            # A name that no `set` wrote is read as the execution knows it, so `ctx.<workload key>` works too.
            return LazyMapping(lambda: list(self._ctx), self._ctx_value, beyond=self._execution_name)
        if name == "workload":
            return self._whole_workload()
        if name == "iter":
            return LazyMapping(lambda: list(self._iteration), lambda key: self._value(self._iteration[key]))
        if name == "steps":
            return LazyMapping(lambda: list(self._results), lambda key: view(self._results[key], self._load))
        return None

    def _ctx_value(self, name: str) -> Any:
        return self._value(self._ctx[name])

    def _whole_workload(self) -> Any:
        if self._workload.ref is not None:
            return value_view(self._workload.ref, self._load)
        return self._workload.v if self._workload.v is not None else {}

    def _workload_key(self, name: str) -> Any:
        workload = self._whole_workload()
        if isinstance(workload, View):
            return workload.member(name)
        return self._value(workload[name])

    def _value(self, value: Any) -> Any:
        if not isinstance(value, Value):
            return value
        return value.v if value.ref is None else value_view(value.ref, self._load)

    def _visible(self) -> list[str]:
        names: dict[str, None] = dict.fromkeys(name for name in PROTECTED if name in self._system)
        for group in (self._locals, ("ctx", "workload", "iter", "steps"), self._iteration, self._ctx, self._results):
            names.update(dict.fromkeys(group))
        workload = self._whole_workload()
        names.update(dict.fromkeys(workload.unwrap() if isinstance(workload, View) else workload))
        names.update(dict.fromkeys(self._system))
        return list(names)


def system_names(
    *,
    execution_id: int,
    catalog_id: int,
    path: str = "",
    version: int = 0,
    parent_execution_id: int = 0,
    env: Mapping[str, str] = {},
    now: Callable[[], str] | None = None,
    last: Any = None,
) -> dict[str, Any]:
    """Return the names the engine itself gives to templates. Ids are texts: they are longer than a double holds."""
    text = str(execution_id)
    names: dict[str, Any] = {
        "execution_id": text,
        "catalog_id": str(catalog_id),
        "job": {"uuid": text, "execution_id": text, "id": text},
        "path": path,
        "version": version,
        "env": dict(env),
    }
    if parent_execution_id:
        names["parent_execution_id"] = str(parent_execution_id)
    if last is not None:
        names["result"] = last  # an older name for what the step before came to
    if now is not None:
        names["now"] = now
    return names
