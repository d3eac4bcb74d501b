"""The sandbox that expressions run in: no Python internals, no filter we did not choose, every operation bounded.

The core has no clock, so work is bounded by counting it: loop passes, operations weighed by the size they make.
"""

import math
import operator
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import ChainableUndefined, Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, missing, pass_context
from jinja2.visitor import NodeTransformer

from noetl_common.core.filters import FILTERS, OF_ROWS, PREDICATES, text_of
from noetl_common.core.scope import Scope
from noetl_common.core.tables import Rows, rows_seen
from noetl_common.core.views import LazyMapping, View, unwrapped, weight

PASSES_MAX = 100_000
OPERATIONS_MAX = 1_000_000
OPERATION_CHARS = 4096  # text or items that count as one operation
SIZE_MAX = 1_048_576  # characters or items that one operation may make
NUMBER_BITS_MAX = 4096
PAD_CHARS_MAX = 10_000

# What the grammar offers beside expressions, `if`, `for` and `set`: files, functions and recursion have no use here.
REFUSED = (
    nodes.Macro,
    nodes.CallBlock,
    nodes.Include,
    nodes.Import,
    nodes.FromImport,
    nodes.Extends,
    nodes.Block,
    nodes.AssignBlock,
    nodes.FilterBlock,
    nodes.ScopedEvalContextModifier,
)
_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        (
            *("lower", "upper", "title", "capitalize", "casefold", "swapcase", "strip", "lstrip", "rstrip"),
            *("split", "rsplit", "splitlines", "partition", "rpartition", "join", "replace", "removeprefix"),
            *("removesuffix", "startswith", "endswith", "find", "rfind", "index", "count", "isdigit", "isalpha"),
            *("isalnum", "isnumeric", "isspace", "islower", "isupper", "zfill", "center", "ljust", "rjust"),
        )
    ),
    dict: frozenset(("get", "keys", "values", "items")),
    list: frozenset(("index", "count", "copy")),
    tuple: frozenset(("index", "count")),
    int: frozenset(("bit_length",)),
    float: frozenset(("is_integer",)),
}
_TEMPLATE_OBJECTS = (LoopContext, Namespace)  # what the grammar itself hands to templates
_PADDING = frozenset(("zfill", "center", "ljust", "rjust"))
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "**": operator.pow,
    "%": operator.mod,
}


class ScopeContext(Context):
    """Names come from a Scope when they are read. The context also counts the work of its one rendering."""

    scope: Scope
    passes = 0
    operations = 0
    none_text = ""  # how None prints

    def resolve_or_missing(self, key: str) -> Any:
        """Return a name's value: set in the template, else of the scope, else one of our few functions."""
        if key in self.vars:
            return self.vars[key]
        try:
            return self.scope.lookup(key)
        except KeyError:
            if key == "keychain":
                # Undefined would put an empty text where its author wanted a secret.
                raise LookupError("keychain is resolved in the worker, in the fields of a tool only") from None
            return self.parent.get(key, missing)

    def charge(self, made: Any) -> Any:
        """Count an operation that made this value, and return it. Errors: OverflowError beyond what is allowed."""
        size = len(made) if isinstance(made, (str, list, tuple, dict)) else 0
        self.operations += 1 + size // OPERATION_CHARS
        if self.operations > OPERATIONS_MAX:
            raise OverflowError(f"more than {OPERATIONS_MAX} operations")
        return made


class Sandbox(ImmutableSandboxedEnvironment):
    """Keys before attributes, a short list of methods and filters, every operator bounded."""

    intercepted_binops = frozenset(_OPERATORS)
    context_class = ScopeContext

    def __init__(self) -> None:
        # Without the optimizer nothing is computed while a template is compiled, where no bound would hold.
        super().__init__(undefined=ChainableUndefined, autoescape=False, optimized=False, keep_trailing_newline=True)
        self.filters = {name: _bounded(function) for name, function in FILTERS.items()}
        self.filters.update({"_passes": _passes, "_text": _text, "_concat": _concat, "_weighed": _weighed})
        self.filters["_method"] = self._read
        self.tests = {
            name: test if name in ("defined", "undefined") else _seeing(test)
            for name, test in self.tests.items()
            if name not in ("filter", "test")
        }
        self.tests.update(PREDICATES)
        self.globals = {name: self.globals[name] for name in ("range", "namespace")}

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return a key, else undefined: `x.items` without a call is a key that is not there, never a method."""
        return self._read(obj, attribute, methods=False)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return an item, key or slice, else undefined."""
        argument = unwrapped(argument)
        if isinstance(argument, str):
            return self._read(obj, argument, methods=False)
        try:
            return obj[argument]
        except (TypeError, LookupError):
            return self.undefined(obj=None, name=str(argument))

    def _read(self, obj: Any, name: str, *, methods: bool = True) -> Any:
        if isinstance(obj, (View, Mapping)):
            try:
                return obj[name]
            except (KeyError, TypeError):
                if name.startswith("_"):
                    return self.undefined(name=name)
        subject = obj
        if methods:
            if isinstance(obj, LazyMapping) and name in _METHODS[dict]:
                return getattr(obj, name)
            subject = unwrapped(obj)
            for kind, names in _METHODS.items():
                if isinstance(subject, kind) and name in names:
                    return getattr(subject, name)
        if isinstance(subject, tuple) and name in getattr(type(subject), "_fields", ()):
            return getattr(subject, name)
        if isinstance(subject, _TEMPLATE_OBJECTS) and not name.startswith("_"):
            return super().getattr(subject, name)
        return obj[name] if isinstance(obj, ChainableUndefined) else self.undefined(name=name)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a method or function, with what it may make bounded before and after."""
        values = [unwrapped(value) for value in args]
        if isinstance(__obj, types.BuiltinMethodType):
            _check_method(__obj, values)
        made = super().call(__context, __obj, *values, **kwargs)
        return _charge(__context, _checked(made))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator to plain values, refusing what would grow without bound."""
        left, right = unwrapped(left), unwrapped(right)
        _check_operands(operator, left, right)
        return _charge(context, _OPERATORS[operator](left, right))

    def bounded(self, tree: nodes.Template) -> nodes.Template:
        """Return the tree with the counting built in. Errors: SecurityError for grammar we do not offer."""
        for node in tree.find_all(REFUSED):
            raise SecurityError(f"{type(node).__name__.lower()} is not available in playbooks")
        if any(name.name == "self" for name in tree.find_all(nodes.Name)):
            raise SecurityError("`self` is not available in playbooks")
        if any(loop.recursive for loop in tree.find_all(nodes.For)):
            raise SecurityError("a recursive loop is not available in playbooks")
        if any(isinstance(one.value, float) and not math.isfinite(one.value) for one in tree.find_all(nodes.Const)):
            # The compiler would write the name `inf` into its code.
            raise SecurityError("a number as large as this is not available in playbooks")
        bounded: nodes.Template = _Bounding(keeps=tree.find(nodes.Assign) is not None).visit(tree)
        return bounded


class _Bounding(NodeTransformer):
    """Puts a counting filter round what the compiler would turn into plain Python that nobody can bound."""

    def __init__(self, *, keeps: bool) -> None:
        self._keeps = keeps  # only what a `set` keeps can be nested in itself again and again

    def visit_For(self, node: nodes.For) -> nodes.Node:
        """Count the passes of a loop."""
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "_passes")
        return node

    def visit_Call(self, node: nodes.Call) -> nodes.Node:
        """Read a method where it is called, and only there."""
        self.generic_visit(node)
        if isinstance(node.node, nodes.Getattr):
            name = nodes.Const(node.node.attr, lineno=node.lineno)
            node.node = nodes.Filter(node.node.node, "_method", [name], [], None, None, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        """Join the parts of `a ~ b` with a bound."""
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "_concat")

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        """Print values our way: objects as JSON."""
        self.generic_visit(node)
        node.nodes = [part if isinstance(part, nodes.TemplateData) else _filtered(part, "_text") for part in node.nodes]
        return node

    def visit_List(self, node: nodes.List) -> nodes.Node:
        """Weigh a list."""
        return self._weighed(node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        """Weigh an object."""
        return self._weighed(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        """Weigh a tuple, unless it is the target of a `for` or `set`."""
        return self._weighed(node) if node.ctx == "load" else node

    def _weighed(self, node: nodes.Expr) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "_weighed") if self._keeps else node


def _filtered(node: Any, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


@pass_context
def _passes(context: ScopeContext, value: Any) -> Iterator[Any]:
    seen = rows_seen(value)
    for item in seen if isinstance(seen, Rows) else unwrapped(value):
        context.passes += 1
        if context.passes > PASSES_MAX:
            raise OverflowError(f"more than {PASSES_MAX} passes of loops")
        yield item


@pass_context
def _concat(context: ScopeContext, parts: list[Any]) -> str:
    texts = [text_of(part) for part in parts]
    _check_size(sum(map(len, texts)))
    return str(context.charge("".join(texts)))


@pass_context
def _weighed(context: ScopeContext, value: Any) -> Any:
    if weight(value, most=OPERATIONS_MAX) > OPERATIONS_MAX:
        raise OverflowError(f"a value of more than {OPERATIONS_MAX} parts")
    return context.charge(value)


@pass_context
def _text(context: ScopeContext, value: Any) -> str:
    value = unwrapped(value)
    return context.none_text if value is None else _checked(text_of(value))


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that sees plain values, and whose results are counted."""
    wants = getattr(function, "jinja_pass_arg", None)

    @pass_context
    def bounded(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        rows = rows_seen(value) if function in OF_ROWS else None
        seen = rows if isinstance(rows, Rows) else unwrapped(value)
        values = [seen, *(unwrapped(arg) for arg in args)]
        if wants is not None:
            given = {"environment": context.environment, "eval_context": context.eval_ctx}
            values.insert(0, given.get(wants.name, context))
        return _charge(context, _checked(function(*values, **kwargs)))

    return bounded


def _seeing(test: Any) -> Callable[..., Any]:
    def seeing(*args: Any) -> Any:
        return test(*(unwrapped(arg) for arg in args))

    # Tests that want the environment are few and none of ours; the mark is carried over all the same.
    seeing.__dict__.update(getattr(test, "__dict__", {}))
    return seeing


def _charge(context: Context, made: Any) -> Any:
    return context.charge(made) if isinstance(context, ScopeContext) else made


def _checked(made: Any) -> Any:
    if isinstance(made, str) and len(made) > SIZE_MAX:
        raise OverflowError(f"a text of {len(made)} characters, allowed are {SIZE_MAX}")
    return made


def _check_method(method: Any, args: list[Any]) -> None:
    subject = method.__self__
    if not isinstance(subject, str):
        return
    name = method.__name__
    if name in _PADDING and args and isinstance(args[0], int) and args[0] > PAD_CHARS_MAX:
        raise OverflowError(f"{name} to {args[0]} characters, allowed are {PAD_CHARS_MAX}")
    if name == "replace" and len(args) >= 2 and isinstance(args[0], str) and isinstance(args[1], str):
        _check_size(len(subject) + subject.count(args[0]) * len(args[1]))
    if name == "join" and args and isinstance(args[0], (list, tuple, str)):
        _check_size(sum(len(part) + len(subject) for part in args[0] if isinstance(part, str)))


def _check_operands(sign: str, left: Any, right: Any) -> None:
    if sign in "+" and isinstance(left, (str, list, tuple)) and isinstance(right, (str, list, tuple)):
        _check_size(len(left) + len(right))
    elif sign == "*":
        for sequence, times in ((left, right), (right, left)):
            if isinstance(sequence, (str, list, tuple)) and isinstance(times, int):
                _check_size(len(sequence) * times)
    elif sign == "%" and isinstance(left, (str, bytes)):
        raise SecurityError("the % operator formats no text here; write ~ between the parts")
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * right if sign == "**" else left.bit_length() + right.bit_length()
        if bits > NUMBER_BITS_MAX:
            raise OverflowError(f"a number of {bits} bits, allowed are {NUMBER_BITS_MAX}")


def _check_size(size: int) -> None:
    if size > SIZE_MAX:
        raise OverflowError(f"a value of size {size}, allowed is {SIZE_MAX}")
