"""Write docs/FAULTS.md from tests/faults.yaml: `make faults`."""

from pathlib import Path

import msgspec
import yaml

SOURCE = Path(__file__).with_name("faults.yaml")
PAGE = Path(__file__).parents[1] / "docs" / "FAULTS.md"
INTRODUCTION = """# Faults

Made by `make faults` from `tests/faults.yaml`; do not edit.

What is decided for each fault, how an operator sees it, and which test shows that each invariant holds behind it.
A number in the matrix is that of a test of the fault; a letter is a reason why nothing is looked at there.
`tests/unit/test_fault_matrix.py` sees to it that every test, metric and log line named here exists, and that no cell
is empty. How to break a stack yourself: [HOWTO.md](HOWTO.md).
"""


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault. `tests`: those that do it, as `file::function[case]`.

    Shapes: `reasons` {invariant, or `rest` for all that no test looks at: name of a reason}.
    """

    fault: str
    roles: tuple[str, ...]
    outcome: str
    tests: tuple[str, ...]
    metric: str = ""
    log: str = ""
    reasons: dict[str, str] = {}


class Matrix(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The data file. `looks_at` {file::function: the invariants that it looks at}."""

    invariants: dict[str, str]
    reasons: dict[str, str]
    looks_at: dict[str, tuple[str, ...]]
    faults: tuple[Fault, ...]

    def proofs(self, fault: Fault, invariant: str) -> list[int]:
        """Return the numbers of the tests of a fault that look at an invariant, from 1."""
        return [
            number
            for number, test in enumerate(fault.tests, 1)
            if invariant in self.looks_at.get(test.partition("[")[0], ())
        ]

    def reason(self, fault: Fault, invariant: str) -> str:
        """Return the name of the reason why no test of a fault looks at an invariant; empty when none is stated."""
        return fault.reasons.get(invariant) or fault.reasons.get("rest", "")


def matrix() -> Matrix:
    """Return the data file. Errors: msgspec.ValidationError for what does not have its shape."""
    return msgspec.convert(yaml.safe_load(SOURCE.read_text(encoding="utf-8")), Matrix, strict=False)


def page(found: Matrix) -> str:
    """Return docs/FAULTS.md."""
    letters = {name: chr(ord("a") + place) for place, name in enumerate(found.reasons)}
    cells = sum(bool(found.proofs(fault, name)) for fault in found.faults for name in found.invariants)
    every = len(found.faults) * len(found.invariants)
    parts = [
        INTRODUCTION,
        f"{len(found.faults)} faults, {len(found.invariants)} invariants: {cells} of {every} cells have a test.\n",
        "## Invariants\n",
        *(f"- **{name}** {text}" for name, text in found.invariants.items()),
        "\n## Why some cells have no test\n",
        *(f"- **{letters[name]}** {text}" for name, text in found.reasons.items()),
        "\n## Matrix\n",
        f"| | fault | {' | '.join(found.invariants)} |",
        "|---" * (len(found.invariants) + 2) + "|",
    ]
    for number, fault in enumerate(found.faults, 1):
        row = [
            ", ".join(map(str, found.proofs(fault, name))) or letters[found.reason(fault, name)]
            for name in found.invariants
        ]
        parts.append(f"| {number} | {fault.fault} | {' | '.join(row)} |")
    parts.append("\n## Faults\n")
    parts += ["| | fault | hits | outcome | metric | log | tests |", "|---|---|---|---|---|---|---|"]
    for number, fault in enumerate(found.faults, 1):
        tests = "<br>".join(f"{place}. `{test}`" for place, test in enumerate(fault.tests, 1))
        said = [f"`{text}`" if text else "" for text in (fault.metric, fault.log)]
        parts.append(
            f"| {number} | {fault.fault} | {', '.join(fault.roles)} | {fault.outcome} | {' | '.join(said)} | {tests} |"
        )
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(matrix()), encoding="utf-8")
    print(f"wrote {PAGE}")
