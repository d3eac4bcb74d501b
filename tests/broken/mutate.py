"""Mutations of playbooks that keep most of their structure: of bytes, of YAML nodes, of templates."""

import random
from collections.abc import Iterator
from typing import Any

import yaml

FRAGMENTS = (
    *("{{ x }}", "{{", "}}", "{%", "%}", "{#", "{{ ctx.a.b['c'] }}", "{% for a in b %}", "{% endfor %}", "{% if x %}"),
    *("null", "[]", "{}", "- ", ": ", "?", "&a ", "*a", "<<: ", "!!str ", "!x ", "|", ">", "|2-", "'", '"', "#", "\t"),
    *("\n", "\n  ", "\r", "---\n", "...\n", "%YAML 1.1\n", "\x00", "\x85", "\u2028", "\ufeff", "\U0001f600", "é", "::"),
    *(
        "when: true",
        "next: start",
        "loop: {in: 3, iterator: n}",
        "step: end",
        "kind: http",
        "else:",
        "do: jump",
        "to: previous",
    ),
    *("1e999", "0x1f", "0777", "1_000", "-0", ".inf", "99999999999999999999", "yes", "~", "2024-01-01"),
)
NONSENSE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 10**18, "", " ", "text", "x" * 3000, "\U0001f600", "a.b", "a b", "__class__"),
    *([], [[]], [None], {}, {"": None}, {"a": {"b": []}}, ["start", "end"], [{"step": "end"}], {"kind": "noop"}),
    *(
        "{{ 1 / 0 }}",
        "{{ x",
        "{ x }",
        "{{ workload }}",
        "{{ ctx }}",
        "{{ keychain.a }}",
        "{% raw %}{{ x }}{% endraw %}",
    ),
)
LEAVES = (
    *(
        "x",
        "workload",
        "ctx",
        "iter",
        "output",
        "event.name",
        "steps",
        "keychain",
        "loop_index",
        "job.id",
        "now()",
        "none",
    ),
    *(
        "1",
        "0",
        "-1",
        "1.5",
        "1e9",
        "10 ** 9",
        "'a'",
        '"é"',
        "[]",
        "{}",
        "[1, 2]",
        "{'a': 1}",
        "()",
        "true",
        "range(9)",
    ),
    *(
        "''.join",
        "x.__class__",
        "self",
        "namespace(a=1)",
        "range(10 ** 9)",
        "'x' * 10 ** 9",
        "loop",
        "caller",
        "varargs",
    ),
)
FILTERS = (
    *(
        "int",
        "float",
        "string",
        "length",
        "default(0)",
        "tojson",
        "fromjson",
        "lower",
        "replace('a', 'b')",
        "first",
        "last",
    ),
    *(
        "join(',')",
        "split(',')",
        "sqlstr",
        "sqljson",
        "b64encode",
        "b64decode",
        "keys",
        "items",
        "sort",
        "unique",
        "batch(2)",
    ),
    *(
        "list",
        "map('upper')",
        "select",
        "groupby('a')",
        "round",
        "abs",
        "sum",
        "reverse",
        "nope",
        "center(9999)",
        "indent(99)",
    ),
)
OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "~", "==", "<", "and", "or", "in", "not in", "is", "if")
TESTS = ("defined", "none", "number", "mapping", "iterable", "sameas(1)", "divisibleby(0)", "nope", "in [1]")
DEPTH_MAX = 5


def mutated(rnd: random.Random, text: str) -> str:
    """Return a copy of a document with one to four things wrong with it, or odd."""
    for _ in range(rnd.randint(1, 4)):
        text = rnd.choice((in_bytes, in_lines, in_nodes, in_nodes, in_templates, in_templates))(rnd, text)
    return text


def in_bytes(rnd: random.Random, text: str) -> str:
    """Return the text with some characters replaced by a fragment of YAML or of templates."""
    at = rnd.randrange(len(text) + 1)
    return text[:at] + rnd.choice(FRAGMENTS) + text[at + rnd.choice((0, 0, 1, 5, 40)) :]


def in_lines(rnd: random.Random, text: str) -> str:
    """Return the text with a line gone, twice, elsewhere or indented otherwise."""
    lines = text.split("\n")
    at, other = rnd.randrange(len(lines)), rnd.randrange(len(lines))
    how = rnd.randrange(4)
    if how == 0:
        del lines[at]
    elif how == 1:
        lines.insert(other, lines[at])
    elif how == 2:
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines[at] = rnd.choice(("  ", " ", "- ", "")) + (lines[at] if rnd.random() < 0.5 else lines[at].lstrip())
    return "\n".join(lines)


def in_nodes(rnd: random.Random, text: str) -> str:
    """Return the document with a part replaced, gone, renamed, copied or exchanged for another one of its parts."""
    try:
        document = yaml.load(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError, TypeError):
        return in_bytes(rnd, text)
    paths = list(_paths(document))
    path = rnd.choice(paths)
    how = rnd.randrange(5)
    if how == 0 and path:
        document = _with(document, path, None, gone=True)
    elif how == 1:
        document = _with(document, path, _at(document, rnd.choice(paths)))
    elif how == 2 and path:
        keys = [other[-1] for other in paths if other and isinstance(other[-1], str)] or ["x"]
        value = _at(document, path)
        document = _with(_with(document, path, None, gone=True), (*path[:-1], rnd.choice(keys)), value)
    else:
        document = _with(document, path, rnd.choice(NONSENSE))
    try:
        return str(yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True))
    except (yaml.YAMLError, RecursionError, ValueError):
        return in_bytes(rnd, text)


def in_templates(rnd: random.Random, text: str) -> str:
    """Return the document with one of its templates replaced by one that is made up."""
    places = [at for at in range(len(text) - 1) if text[at : at + 2] == "{{"]
    if not places:
        return in_bytes(rnd, text)
    at = rnd.choice(places)
    end = text.find("}}", at)
    made = template(rnd).replace("'", '"') if rnd.random() < 0.5 else template(rnd)
    return text[:at] + made + text[end + 2 if end >= 0 else len(text) :]


def template(rnd: random.Random) -> str:
    """Return a template: mostly one that parses."""
    how = rnd.randrange(10)
    if how < 6:
        made = "{{ " + expression(rnd) + " }}"
    elif how == 6:
        made = "{% if " + expression(rnd) + " %}a{% else %}{{ " + expression(rnd) + " }}{% endif %}"
    elif how == 7:
        made = "{% for a in " + expression(rnd) + " %}{{ a }}{{ loop.index }}{% endfor %}"
    elif how == 8:
        made = "{% set a = " + expression(rnd) + " %}{{ [a, a] }}{{ " + expression(rnd) + " }}"
    else:
        made = "{{ " + expression(rnd) + " }} and {{ " + expression(rnd) + " }}"
    return in_bytes(rnd, made) if rnd.random() < 0.15 else made


def expression(rnd: random.Random, depth: int = 0) -> str:
    """Return an expression of the template language, nested at most DEPTH_MAX levels."""
    if depth >= DEPTH_MAX or rnd.random() < 0.25:
        return rnd.choice(LEAVES)
    inner = expression(rnd, depth + 1)
    other = expression(rnd, depth + 1)
    return rnd.choice(
        (
            f"({inner}) | {rnd.choice(FILTERS)}",
            f"{inner} {rnd.choice(OPERATORS)} {other}",
            f"({inner} {rnd.choice(OPERATORS)} {other})",
            f"({inner})[{other}]",
            f"({inner})[{rnd.choice(('1:', ':1', '::-1', '0', '-1', '::0'))}]",
            f"({inner}).{rnd.choice(('a', 'items', 'get', 'split', '_ref', '__class__', 'format', 'data'))}",
            f"({inner}).{rnd.choice(('get', 'split', 'join', 'replace', 'zfill', 'index', 'items'))}({other})",
            f"{inner} if {other} else {expression(rnd, depth + 1)}",
            f"({inner}) is {rnd.choice(('', 'not '))}{rnd.choice(TESTS)}",
            f"[{inner}, {other}]",
            f"{{'a': {inner}, {other}: 1}}",
            f"not {inner}",
            f"-({inner})",
        )
    )


def _paths(value: Any, depth: int = 0) -> Iterator[tuple[Any, ...]]:
    yield ()
    if depth > 40:
        return
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        for path in _paths(part, depth + 1):
            yield (key, *path)


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _with(value: Any, path: tuple[Any, ...], part: Any, *, gone: bool = False) -> Any:
    """Return a copy of `value` with the part at `path` replaced, or gone."""
    if not path:
        return part
    key, rest = path[0], path[1:]
    if isinstance(value, dict):
        if gone and not rest:
            return {name: each for name, each in value.items() if name != key}
        return {**value, key: _with(value.get(key), rest, part, gone=gone)}
    if isinstance(value, list) and isinstance(key, int):
        if gone and not rest:
            return [each for index, each in enumerate(value) if index != key]
        return [_with(each, rest, part, gone=gone) if index == key else each for index, each in enumerate(value)]
    if isinstance(value, list):
        return [*value, {key: part}]
    return {key: part}
