"""Results of every JSON shape and size, the same for the same number. It is also the code of a playbook's step."""

import random

BYTES_MAX = 5_000_000


def made(number):
    """Return result `number`: most are small, few are of megabytes."""
    rng = random.Random(number)
    size = int(10 ** (rng.random() ** 2 * 6.7))
    return SHAPES[number % len(SHAPES)](rng, min(size, BYTES_MAX))


def text_of(rng, count):
    """Return a text of `count` characters, some of them rare."""
    part = "".join(rng.choice('abc xyz 0189 \u00e9\u4e16\U0001f600 \x00\n"\\<') for _ in range(min(count, 500)))
    return (part * (count // len(part) + 1))[:count] if part else ""


def scalar(rng, size):
    """Return one value that is no container."""
    numbers = [0, -1, 2**31, 2**53 + 1, -(2**63), 2**64 - 1, 0.1, -0.0, 1e300, 5e-324, 1.5]
    return rng.choice([None, True, False, "", *numbers, text_of(rng, size // 3)])


def flat(rng, size):
    """Return a list of values of many kinds."""
    return [scalar(rng, 30) for _ in range(size // 12)]


def named(rng, size):
    """Return an object, some of whose names mean something elsewhere."""
    names = ["status", "data", "result", "error", "rows", "columns", "row_count", "results", "_ref", "reference", "v"]
    found = {name: scalar(rng, 20) for name in rng.sample(names, rng.randrange(len(names)))}
    return {**found, **{f"{text_of(rng, 3)}{place}": scalar(rng, 40) for place in range(size // 40)}}


def records(rng, size):
    """Return a list of objects that have not all the same names."""
    return [
        {"id": place, rng.choice("abc"): scalar(rng, 20), "tags": [place] * (place % 3)} for place in range(size // 50)
    ]


def table(rng, size):
    """Return rows with columns, as SQL brings them, whose values are of any type."""
    columns = ["id", "text", "mixed", "nested"]
    rows = [
        {"id": place, "text": text_of(rng, 10), "mixed": scalar(rng, 10), "nested": {"of": [scalar(rng, 5)]}}
        for place in range(max(size // 90, 1))
    ]
    summary = {"columns": columns, "rows": rows, "row_count": len(rows)}
    return {**summary, "command_0": {"status": "success", **summary}} if rng.random() < 0.5 else summary


def lists(rng, size):
    """Return rows that are lists."""
    return {"columns": ["a", "b"], "rows": [[place, scalar(rng, 10)] for place in range(size // 20)]}


def deep(rng, size):
    """Return what is nested deeply."""
    value = scalar(rng, size)
    for place in range(rng.randrange(1, 50)):
        value = {f"level {place}": value} if place % 2 else [value, place]
    return value


SHAPES = [scalar, flat, named, records, table, lists, deep]
