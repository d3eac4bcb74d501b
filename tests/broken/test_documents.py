"""Documents that nobody should register: each is refused with its place, what was expected and what was found."""

import pytest

from noetl_common.core.parse import parse
from noetl_common.errors import PlaybookError
from tests.broken.cases import BOTH, GOOD, Case, cases, lacking, name_of, text_of


def test_the_good_document_has_nothing_to_complain_of() -> None:
    assert parse(GOOD)[1] == []


@pytest.mark.parametrize("case", cases("documents"), ids=name_of)
def test_a_broken_document_is_refused_with_place_expected_and_found(case: Case) -> None:
    with pytest.raises(PlaybookError) as refused:
        parse(text_of(case))
    errors = [problem for problem in refused.value.problems if problem["severity"] == "error"]
    assert all(BOTH.search(error["message"]) for error in errors), errors
    fitting = [
        error
        for error in errors
        if f"{error['line']}:{error['column']}" == case["place"]
        and error.get("where", "") == case.get("where", "")
        and error.get("hint", "") == case.get("hint", "")
        and not lacking(case, error["message"])
    ]
    assert fitting, errors
