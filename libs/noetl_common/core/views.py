"""Views: values that templates read like JSON while what they stand for is loaded only when a read needs it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jinja2.runtime import Undefined

from noetl_common.core.values import Ref

# The payload a reference names (key None), or one top-level key of it. A key that the payload lacks, or a key of
# something that is no object, is a KeyError; a payload that is not at hand is a NeedPayload. A table is loaded without
# its rows, and the NeedPayload of a read asks for groups of them (noetl_common.core.tables.group_in).
Load = Callable[[Ref, str | None], Any]


PARTS_MAX = 10_000_000
_SCALARS = frozenset((str, int, float, bool, type(None)))


class NeedPayload(Exception):
    """A template read payloads that are not loaded: load these and render again. Not a failure, so no NoetlError."""

    def __init__(self, needs: list[tuple[Ref, str | None]]) -> None:
        self.needs = needs
        super().__init__(", ".join(ref.uri for ref, _ in needs))


class View(ABC):
    """Something that templates read like JSON. Subclasses say what it stands for and which names it answers."""

    @abstractmethod
    def unwrap(self) -> Any:
        """Return what the view stands for, as plain JSON types."""

    def member(self, name: str) -> Any:
        """Return the value under a name. Errors: KeyError when there is none."""
        return _key_of(self.unwrap(), name)

    def peek(self) -> Any:
        """Return what can be told of what the view stands for without loading the rows of a table."""
        return self

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value under a key, or `default`."""
        try:
            return self[key]
        except (KeyError, IndexError, TypeError):
            return default

    def keys(self) -> Any:
        """Return the keys of the object this stands for."""
        return self.unwrap().keys()

    def values(self) -> Any:
        """Return the values of the object this stands for."""
        return self.unwrap().values()

    def items(self) -> Any:
        """Return the pairs of the object this stands for."""
        return self.unwrap().items()

    def __getitem__(self, key: Any) -> Any:
        return self.member(key) if isinstance(key, str) else self.unwrap()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.unwrap())

    def __len__(self) -> int:
        return len(self.unwrap())

    def __contains__(self, key: object) -> bool:
        return key in self.unwrap()

    def __bool__(self) -> bool:
        return bool(self.unwrap())

    def __eq__(self, other: object) -> bool:
        return bool(self.unwrap() == unwrapped(other))

    def __lt__(self, other: Any) -> bool:
        return bool(self.unwrap() < unwrapped(other))

    def __le__(self, other: Any) -> bool:
        return bool(self.unwrap() <= unwrapped(other))

    def __gt__(self, other: Any) -> bool:
        return bool(self.unwrap() > unwrapped(other))

    def __ge__(self, other: Any) -> bool:
        return bool(self.unwrap() >= unwrapped(other))

    # A view may stand for a list or an object, so it can be no key itself.
    __hash__ = None  # type: ignore[assignment]


class LazyMapping(View, Mapping[str, Any]):
    """A mapping whose values are made when they are read; `beyond` answers names that are no keys of it."""

    def __init__(
        self,
        names: Callable[[], list[str]],
        read: Callable[[str], Any],
        *,
        beyond: Callable[[str], Any] | None = None,
    ) -> None:
        self._names = names
        self._read = read
        self._beyond = beyond

    def unwrap(self) -> dict[str, Any]:
        """Return the mapping with every value plain."""
        return {name: plain(self._read(name)) for name in self._names()}

    def member(self, name: str) -> Any:
        """Return one value, without making the others."""
        try:
            return self._read(name)
        except KeyError:
            if self._beyond is None:
                raise
            return self._beyond(name)

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value under a key, or `default`."""
        return View.get(self, key, default)

    def keys(self) -> Any:
        """Return the names, without making the values."""
        return dict.fromkeys(self._names()).keys()

    def values(self) -> Any:
        """Return the values, each plain."""
        return self.unwrap().values()

    def items(self) -> Any:
        """Return the pairs, each value plain."""
        return self.unwrap().items()

    def __getitem__(self, key: str) -> Any:
        return self.member(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __contains__(self, key: object) -> bool:
        return key in self._names()

    def __bool__(self) -> bool:
        return bool(self._names())

    def __eq__(self, other: object) -> bool:
        return View.__eq__(self, other)

    __hash__ = None  # type: ignore[assignment]


def unwrapped(value: Any) -> Any:
    """Return what a view stands for; anything else as it is."""
    return value.unwrap() if isinstance(value, View) else value


def plain(value: Any) -> Any:
    """Return the value as JSON types: views unwrapped, undefined as None, tuples and generators as lists."""
    return value if _is_plain(value) else _Flattening().plain(value)


def weight(value: Any, *, most: int) -> int:
    """Return how many parts a value has, all the way down; counting stops soon after `most`."""
    parts = 0
    todo = [value]
    while todo and parts <= most:
        part = todo.pop()
        parts += 1
        if isinstance(part, (list, tuple)):
            parts += len(part)
            todo.extend(part[:most])
        elif isinstance(part, dict):
            parts += len(part)
            todo.extend(part.values())
    return parts


def _is_plain(value: Any) -> bool:
    # Most values are JSON already; looking first saves copying payloads of many megabytes.
    parts = 0
    todo = [value]
    while todo:
        part = todo.pop()
        kind = type(part)
        if kind in _SCALARS:
            continue
        if kind is list:
            todo.extend(part)
        elif kind is dict and all(type(key) is str for key in part):
            todo.extend(part.values())
        else:
            return False
        parts += len(part)
        if parts > PARTS_MAX:
            raise OverflowError(f"a value of more than {PARTS_MAX} parts")
    return True


class _Flattening:
    """Makes a value plain, counting its parts, since a list may stand in itself many times over."""

    def __init__(self) -> None:
        self._parts = 0

    def plain(self, value: Any) -> Any:
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise OverflowError(f"a value of more than {PARTS_MAX} parts")
        value = unwrapped(value)
        if type(value) in _SCALARS:
            return value
        if isinstance(value, Undefined) or callable(value):
            return None  # a method that was named but not called is nothing an author can have meant
        if isinstance(value, Mapping):
            return {str(key): self.plain(item) for key, item in value.items()}
        if isinstance(value, (set, frozenset)):
            return sorted((self.plain(item) for item in value), key=str)
        if hasattr(value, "__iter__") and not isinstance(value, (str, bytes)):
            return [self.plain(item) for item in value]
        return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (int, float)):
        return value
    return str(value)


def _key_of(value: Any, name: str) -> Any:
    if isinstance(value, View):
        return value.member(name)
    if isinstance(value, Mapping):
        return value[name]
    raise KeyError(name)
