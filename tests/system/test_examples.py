"""Every example runs to its end on a new stack and returns what it says."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.patient_flow.__main__ import RECORDS_EXPECTED
from examples.patient_flow.__main__ import run as run_patient_flow
from examples.patient_flow.server import PatientApi
from noetl_cli.api import Api
from noetl_cli.embedded.stack import Plan, throwaway_stack
from noetl_cli.progress import follow

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A stack of its own, as `noetl run` starts one; its Postgres and NATS too, whatever the environment names."""
    folder = tmp_path_factory.mktemp("stack")
    with pytest.MonkeyPatch.context() as environ:
        for name in ("DATABASE_URL", "NATS_URL", "DATABASE_URL_FILE", "NATS_URL_FILE", "NOETL_API_TOKEN"):
            environ.delenv(name, raising=False)
        with throwaway_stack(folder, Plan(owner="run")) as stack:
            assert stack.running is not None
            with Api(stack.running.api_url) as opened:
                yield opened


def result_of(api: Api, file: str, **payload: Any) -> Any:
    catalog_id = api.register((EXAMPLES / file).read_text(encoding="utf-8"))["catalog_id"]
    execution_id = api.execute({"catalog_id": catalog_id}, payload)
    view = follow(api, execution_id, tend=list)
    detail = api.execution(execution_id)
    assert view.status == detail["status"] == "COMPLETED", detail.get("error")
    return api.resolve(detail["result"]["ref"])


def test_hello_greets_whom_it_is_told_to(api: Api) -> None:
    assert result_of(api, "hello/hello.yaml") == {"greeting": "Hello, world!"}
    assert result_of(api, "hello/hello.yaml", name="Ada") == {"greeting": "Hello, Ada!"}


def test_the_loop_adds_squares_and_branches_on_the_sum(api: Api) -> None:
    assert result_of(api, "loop/loop.yaml") == {"size": "large", "total": 385}
    assert result_of(api, "loop/loop.yaml", numbers=[3, 4]) == {"size": "small", "total": 25}


def test_the_patient_flow_verifies_five_thousand_records(api: Api) -> None:
    with PatientApi() as patients:
        view, counts = run_patient_flow(api, list, patients.url)
    assert view.status == "COMPLETED"
    assert counts["verified_records"] == RECORDS_EXPECTED == 5000
    assert set(counts["by_kind"].values()) == {1000} and counts["patients"] == 1000
