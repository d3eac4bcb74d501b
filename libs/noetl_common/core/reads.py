"""Reads: which names templates and code mention, told from their text alone."""

import ast
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import nodes

from noetl_common.core.templates import SANDBOX, condition_source, is_template, mask_comments, names

ANALYSED_MAX = 4096
_METHODS = frozenset(("get", "keys", "values", "items"))
# Namespaces through which any variable can be read: which one is known only when a key is written out.
_NAMESPACES = frozenset(("ctx", "workload", "steps"))


def condition_names(when: str | bool | None) -> frozenset[str]:
    """Return the root names that a condition mentions."""
    return names(condition_source(when)) if isinstance(when, str) else frozenset()


def needed_names(texts: list[str]) -> frozenset[str] | None:
    """Return the names that texts read: roots, and keys of `ctx`, `workload` and `steps`. None: cannot be told."""
    needed: set[str] = set()
    for text in texts:
        if not is_template(text):
            continue
        keys = _keys_of(text)
        if keys is None:
            return None
        needed |= names(text) | keys
    return frozenset(needed)


def code_reads(code: str, name: str) -> bool:
    """Return whether Python code mentions an identifier; code that does not parse does when the word stands in it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd code is its author's, and is not run here
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return name in code
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))


def texts_in(template: Any) -> Iterator[str]:
    """Yield every text of a structure, the keys of objects too."""
    if isinstance(template, str):
        yield template
    elif isinstance(template, Mapping):
        for key, value in template.items():
            yield from texts_in(key)
            yield from texts_in(value)
    elif isinstance(template, (list, tuple)):
        for value in template:
            yield from texts_in(value)


@lru_cache(maxsize=ANALYSED_MAX)
def _keys_of(source: str) -> frozenset[str] | None:
    """Return the keys read through the namespaces, None when one is used whole or with a key that is computed."""
    tree = _tree_of(source)
    if tree is None:
        return frozenset()
    keys: set[str] = set()
    mentions = sum(1 for name in tree.find_all(nodes.Name) if name.ctx == "load" and name.name in _NAMESPACES)
    accesses: list[Any] = [*tree.find_all(nodes.Getattr), *tree.find_all(nodes.Getitem)]
    for access in accesses:
        if not isinstance(access.node, nodes.Name) or access.node.name not in _NAMESPACES:
            continue
        key = access.attr if isinstance(access, nodes.Getattr) else _constant(access.arg)
        if key is None or key in _METHODS:
            return None
        keys.add(key)
        mentions -= 1
    return frozenset(keys) if mentions == 0 else None


def _constant(argument: nodes.Expr) -> str | None:
    return argument.value if isinstance(argument, nodes.Const) and isinstance(argument.value, str) else None


def _tree_of(source: str) -> nodes.Template | None:
    try:
        return SANDBOX.parse(mask_comments(source)[0])
    except (jinja2.TemplateError, RecursionError):
        return None
