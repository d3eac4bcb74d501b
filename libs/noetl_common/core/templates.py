"""Templates: Jinja2 expressions over a scope, keeping native types, sandboxed, bounded, compiled once."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import meta, nodes

from noetl_common.core.filters import text_of
from noetl_common.core.results import ResultView
from noetl_common.core.sandbox import Sandbox, ScopeContext
from noetl_common.core.scope import Scope
from noetl_common.core.tables import Rows, rows_seen
from noetl_common.core.views import NeedPayload, plain, unwrapped
from noetl_common.errors import TemplateFailed

SOURCE_BYTES_MAX = 65_536
TEXT_CHARS_MAX = 1_048_576
NESTING_MAX = 64
COMPILED_MAX = 4096
_FALSE_WORDS = frozenset(("", "false", "0", "no", "none", "null", "off", "{}", "[]"))
SANDBOX = Sandbox()


def render(template: Any, scope: Scope, *, where: str) -> Any:
    """Return the template with every text in it rendered, as plain JSON types.

    Shapes: a text that is one `{{ expression }}` gives the expression's value as it is, undefined as None; other
    text with templates gives text; literals stay as they are.
    Errors: TemplateFailed; NeedPayload naming everything that must be loaded first.
    """
    needs: list[tuple[Any, str | None]] = []
    rendered = _render_tree(template, scope, where=where, needs=needs)
    if needs:
        raise NeedPayload(needs)
    return rendered


def render_rows(template: Any, scope: Scope, *, where: str) -> Any:
    """Return what `render` does; an expression that gives the rows of a table gives them without loading them."""
    if not is_template(template):
        return render(template, scope, where=where)
    return _value(_compiled(template, where), scope, where, keeps=(Rows,))


def render_reference(template: Any, scope: Scope, *, where: str) -> Any:
    """Return what `render` does; an expression that gives a stored result, or rows of one, gives its reference."""
    if not is_template(template):
        return render(template, scope, where=where)
    found = _value(_compiled(template, where), scope, where, keeps=(Rows, ResultView))
    return found.ref if isinstance(found, Rows | ResultView) and found.ref is not None else plain(found)


def render_text(text: str, scope: Scope, *, where: str) -> str:
    """Return code with its templates rendered as text. Lines that are `#` comments stay as they are."""
    if not is_template(text):
        return text
    masked, comments = mask_comments(text)
    if not is_template(masked):
        return text
    return _unmask(_text(_compiled(masked, where), scope, where, none="None"), comments)


def holds(when: str | bool | None, scope: Scope, *, where: str) -> bool:
    """Return whether a condition is true; braces may be left out. None holds."""
    if not isinstance(when, str):
        return when is None or bool(when)
    return is_truthy(_value(_compiled(condition_source(when), where), scope, where, keeps=(Rows,)))


def is_truthy(value: Any) -> bool:
    """Return a value's truth as conditions take it: the words for false are false too."""
    value = rows_seen(value)
    value = value if isinstance(value, Rows) else unwrapped(value)
    return value.strip().lower() not in _FALSE_WORDS if isinstance(value, str) else bool(value)


def names(template: Any) -> frozenset[str]:
    """Return the root names that a template structure mentions; a text that does not parse mentions none."""
    if isinstance(template, str):
        return _names_of(template) if is_template(template) else frozenset()
    if isinstance(template, Mapping):
        return names(list(template.keys())) | names(list(template.values()))
    if isinstance(template, (list, tuple)):
        return frozenset().union(*map(names, template))
    return frozenset()


def is_template(value: Any) -> bool:
    """Return whether a value is a text with an expression, statement or comment of the template language."""
    return isinstance(value, str) and ("{{" in value or "{%" in value or "{#" in value)


def check(source: str, *, where: str = "") -> None:
    """Do nothing for a text that parses. Errors: TemplateFailed, with the line in its message."""
    _compiled(source, where)


def condition_source(when: str) -> str:
    """Return a condition as template text: braces are added when it has none."""
    return when if "{{" in when or "{%" in when else "{{ " + when + " }}"


def mask_comments(code: str) -> tuple[str, list[str]]:
    """Return code whose comment lines hold no templates, and those lines, for what `{{ }}` in a comment says."""
    comments: list[str] = []
    lines = code.split("\n")
    for index, line in enumerate(lines):
        if line.lstrip().startswith("#") and is_template(line):
            lines[index] = f"\x00{len(comments)}\x00"
            comments.append(line)
    return "\n".join(lines), comments


class _Compiled:
    """One compiled text: `is_native` when it is a single expression."""

    def __init__(self, source: str) -> None:
        self.source = source
        tree = SANDBOX.parse(source)
        expression = _single_expression(tree)
        self.is_native = expression is not None
        if expression is not None:
            tree.body = [nodes.Assign(nodes.Name("result", "store"), expression)]
            tree.set_lineno(1)
            tree.set_environment(SANDBOX)
        template = SANDBOX.from_string(SANDBOX.bounded(tree))
        self.root: Callable[[ScopeContext], Iterator[str]] = template.root_render_func

    def context(self, scope: Scope) -> ScopeContext:
        """Return a fresh context over the scope."""
        context = ScopeContext(SANDBOX, SANDBOX.globals, None, {})
        context.scope = scope
        return context


def _single_expression(tree: nodes.Template) -> nodes.Expr | None:
    """Return the expression when the text is one expression and perhaps blanks round it."""
    if len(tree.body) != 1 or not isinstance(tree.body[0], nodes.Output):
        return None
    parts = [part for part in tree.body[0].nodes if not _is_blank(part)]
    return parts[0] if len(parts) == 1 and not isinstance(parts[0], nodes.TemplateData) else None


def _is_blank(part: nodes.Node) -> bool:
    return isinstance(part, nodes.TemplateData) and not part.data.strip()


@lru_cache(maxsize=COMPILED_MAX)
def _compile(source: str) -> "_Compiled | Exception":
    # Failures are kept as well: a wrong template is asked for as often as a right one.
    if len(source.encode("utf-8", "replace")) > SOURCE_BYTES_MAX:
        return OverflowError(f"a template of more than {SOURCE_BYTES_MAX} bytes")
    try:
        with warnings.catch_warnings():
            # What Python finds odd in the code of a template, such as 1["a"], its author is told when it is rendered.
            warnings.simplefilter("ignore", SyntaxWarning)
            return _Compiled(source)
    except (jinja2.TemplateError, RecursionError, SyntaxError, ValueError, OverflowError) as error:
        return error


def _compiled(source: str, where: str) -> _Compiled:
    compiled = _compile(source)
    if isinstance(compiled, _Compiled):
        return compiled
    reason = str(compiled).rstrip(".")
    line = f" (line {compiled.lineno})" if isinstance(compiled, jinja2.TemplateSyntaxError) else ""
    raise TemplateFailed(
        f"expected a template that parses, found one that does not parse: {reason}{line}",
        expression=source,
        where=where,
    ) from compiled


def _render_tree(template: Any, scope: Scope, *, where: str, needs: list[Any], depth: int = 0) -> Any:
    if depth > NESTING_MAX:
        raise TemplateFailed(f"expected at most {NESTING_MAX} levels, found a part nested deeper", where=where)
    if isinstance(template, str):
        if not is_template(template):
            return template
        try:
            return _render_leaf(template, scope, where)
        except NeedPayload as need:
            # Going on finds what the other texts need, so that one round of loading is enough.
            needs.extend(entry for entry in need.needs if entry not in needs)
            return None
    if isinstance(template, Mapping):
        return {
            text_of(_render_tree(key, scope, where=where, needs=needs, depth=depth + 1)): _render_tree(
                value, scope, where=f"{where}.{key}" if where else str(key), needs=needs, depth=depth + 1
            )
            for key, value in template.items()
        }
    if isinstance(template, (list, tuple)):
        return [
            _render_tree(value, scope, where=f"{where}[{index}]", needs=needs, depth=depth + 1)
            for index, value in enumerate(template)
        ]
    return plain(template)


def _render_leaf(text: str, scope: Scope, where: str) -> Any:
    compiled = _compiled(text, where)
    return _value(compiled, scope, where) if compiled.is_native else _text(compiled, scope, where, none="")


def _value(compiled: _Compiled, scope: Scope, where: str, *, keeps: tuple[type, ...] = ()) -> Any:
    if not compiled.is_native:
        return _text(compiled, scope, where, none="")
    context = compiled.context(scope)

    def run() -> Any:
        for _ in compiled.root(context):
            pass
        result = context.vars["result"]
        if keeps and not isinstance(result, keeps):
            result = rows_seen(result)
        return result if keeps and isinstance(result, keeps) else plain(result)

    return _guarded(run, compiled.source, where)


def _text(compiled: _Compiled, scope: Scope, where: str, *, none: str) -> str:
    context = compiled.context(scope)
    context.none_text = none

    def run() -> str:
        if compiled.is_native:
            for _ in compiled.root(context):
                pass
            value = plain(context.vars["result"])
            return none if value is None else text_of(value)
        parts: list[str] = []
        chars = 0
        for part in compiled.root(context):
            chars += len(part)
            if chars > TEXT_CHARS_MAX:
                raise OverflowError(f"a rendered text of more than {TEXT_CHARS_MAX} characters")
            parts.append(part)
        return "".join(parts)

    return str(_guarded(run, compiled.source, where))


def _guarded(run: Callable[[], Any], source: str, where: str) -> Any:
    try:
        return run()
    except NeedPayload:
        raise
    # Whatever an expression raises is the author's: a division by zero, a number that is none, a bound exceeded.
    except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise TemplateFailed(_reason(error), expression=source, where=where) from error
    except (RecursionError, MemoryError) as error:
        raise TemplateFailed(
            "expected a smaller expression, found one too deep or too large", expression=source, where=where
        ) from error


def _reason(error: Exception) -> str:
    return f"expected a value, found {type(error).__name__}" + (f": {error}" if str(error) else "")


@lru_cache(maxsize=COMPILED_MAX)
def _names_of(source: str) -> frozenset[str]:
    try:
        tree = SANDBOX.bounded(SANDBOX.parse(mask_comments(source)[0]))
        # As meta.find_undeclared_variables does, but nothing is computed: what is constant may raise anything.
        found = meta.TrackingCodeGenerator(SANDBOX)
        found.optimizer = None
        found.visit(tree)
        return frozenset(found.undeclared_identifiers) - SANDBOX.globals.keys()
    except (jinja2.TemplateError, RecursionError):
        return frozenset()


def _unmask(text: str, comments: list[str]) -> str:
    for index, line in enumerate(comments):
        text = text.replace(f"\x00{index}\x00", line, 1)
    return text
