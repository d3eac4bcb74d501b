"""The matrix of faults is honest: what it names exists, and no cell is left open."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from noetl_common.metrics import METRICS
from tests.fault_matrix import PAGE, Fault, matrix, page

ROOT = Path(__file__).parents[2]
MATRIX = matrix()
ROLES = {"ingest", "meta", "compute", "compactor", "worker"}
LOG_VERBS = {"debug", "info", "warning", "error", "exception"}
FAULTS = pytest.mark.parametrize("fault", MATRIX.faults, ids=lambda fault: fault.fault)


@cache
def functions_in(file: str) -> dict[str, str]:
    """Return {test function: what decorates it} of a file, and under "" all of its text."""
    text = (ROOT / file).read_text(encoding="utf-8")
    nodes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {"": text} | {node.name: " ".join(map(ast.unparse, node.decorator_list)) for node in nodes}


@cache
def logged() -> frozenset[str]:
    """Return the name of every event that the code logs."""
    found = set()
    for path in [*(ROOT / "libs").rglob("*.py"), *(ROOT / "services").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOG_VERBS:
                found |= {str(arg.value) for arg in node.args[:1] if isinstance(arg, ast.Constant)}
    return frozenset(found)


def test_there_are_forty_faults_and_twelve_invariants() -> None:
    assert len(MATRIX.faults) >= 40 and len(MATRIX.invariants) == 12
    assert len({fault.fault for fault in MATRIX.faults}) == len(MATRIX.faults)


@FAULTS
def test_what_a_fault_names_exists(fault: Fault) -> None:
    for test in fault.tests:
        found = re.fullmatch(r"(tests/[\w/]+\.py)::(test_\w+)(?:\[(.+)\])?", test)
        assert found, f"expected file::function[case], found {test}"
        file, function, case = found.groups()
        assert function in functions_in(file), f"{file} has no {function}"
        if case:
            assert "parametrize" in functions_in(file)[function], f"{test}: it has no cases"
            assert re.search(rf"\b{re.escape(case)}\b", functions_in(file)[""]), f"{test}: no such case"
    assert fault.tests
    assert not fault.metric or fault.metric in {metric.name for metric in METRICS}
    assert not fault.log or fault.log in logged(), f"nobody logs {fault.log}"
    assert fault.metric or fault.log, "an operator has to see it somewhere"
    assert set(fault.roles) <= ROLES and fault.outcome


@FAULTS
def test_every_cell_has_a_test_or_a_reason(fault: Fault) -> None:
    for invariant in MATRIX.invariants:
        proofs, reason = MATRIX.proofs(fault, invariant), MATRIX.reason(fault, invariant)
        assert proofs or reason in MATRIX.reasons, f"{invariant}: expected a test or a reason, found {reason!r}"
        assert not (proofs and invariant in fault.reasons), f"{invariant}: a test and a reason why there is none"


def test_nothing_is_said_of_what_no_fault_names() -> None:
    named = {test.partition("[")[0] for fault in MATRIX.faults for test in fault.tests}
    assert MATRIX.looks_at.keys() <= named
    assert {name for names in MATRIX.looks_at.values() for name in names} <= MATRIX.invariants.keys()
    assert {name for fault in MATRIX.faults for name in fault.reasons.values()} == MATRIX.reasons.keys()
    assert {name for fault in MATRIX.faults for name in fault.reasons} <= MATRIX.invariants.keys() | {"rest"}


def test_every_fault_that_a_stack_is_broken_with_stands_in_the_matrix() -> None:
    from tests.system.test_faults import FAULTS as done

    named = {test for fault in MATRIX.faults for test in fault.tests}
    for name in done:
        assert f"tests/system/test_faults.py::test_behind_a_fault_every_invariant_holds[{name}]" in named


def test_the_page_is_what_the_matrix_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(MATRIX), "docs/FAULTS.md is old: run `make faults`"
