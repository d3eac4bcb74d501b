"""The table of cases: each small playbook of cases/*.yaml ends as its row says, and each rule has one that shows it."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from noetl_common.core.results import merged
from tests.conformance.case_table import Case, playbook_text, read_cases, read_rules
from tests.conformance.running import Run
from tests.conformance.stub_api import StubApi

CASES = read_cases()
CANCEL_S_MAX = 20.0


class Started(msgspec.Struct):
    """A case on its way: what registering answered, and the run, None when the document was refused."""

    registered: httpx.Response
    run: Run | None = None


class Starter:
    """Starts the cases of an area together, so that waiting for one lets the others get on."""

    def __init__(self, api: httpx.Client, stub: StubApi, folder: Path) -> None:
        self._api = api
        self._stub = stub
        self._folder = folder
        self._started: dict[tuple[str, str], Started] = {}

    def start(self, cases: list[Case]) -> None:
        """Register and start these cases, those not started yet."""
        for case in cases:
            if (case.area, case.case) not in self._started:
                self._started[case.area, case.case] = self._start(case)

    def started(self, case: Case) -> Started:
        """Return a case that was started."""
        return self._started[case.area, case.case]

    def _start(self, case: Case) -> Started:
        folder = self._folder / case.path
        folder.mkdir(parents=True)
        for name, text in case.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        for path, written in case.playbooks.items():
            for fields in written if isinstance(written, list) else [written]:
                answer = self._api.post("/api/catalog/register", json={"content": playbook_text(path, fields)})
                assert answer.status_code == 200, answer.text
        registered = self._api.post("/api/catalog/register", json={"content": case.document()})
        if registered.status_code != 200:
            return Started(registered)
        given = {"api_url": self._stub.url, "folder": str(folder)}
        payload = {key: value for key, value in given.items() if key in (case.workload or {})} | case.payload
        answer = self._api.post("/api/execute", json={"path": registered.json()["path"], "payload": payload})
        assert answer.status_code == 200, answer.text
        run = Run(self._api, str(answer.json()["execution_id"]))
        if case.cancel:
            _cancel(self._api, run, case.cancel)
        return Started(registered, run)


@pytest.fixture(scope="session")
def starter(api: httpx.Client, stub: StubApi, tmp_path_factory: pytest.TempPathFactory) -> Starter:
    """What starts cases, once each."""
    return Starter(api, stub, tmp_path_factory.mktemp("cases"))


@pytest.mark.parametrize("case", CASES, ids=[f"{case.area}: {case.case}" for case in CASES])
def test_a_case_ends_as_its_row_says(case: Case, starter: Starter, request: pytest.FixtureRequest) -> None:
    wanted = (getattr(item, "callspec", None) for item in request.session.items)
    cases = [found.params.get("case") for found in wanted if found is not None]
    starter.start([other for other in cases if isinstance(other, Case) and other.area == case.area])
    _check(case, starter.started(case))


def test_every_rule_is_shown_by_a_case_and_every_case_shows_a_rule() -> None:
    rules = [rule for listed in read_rules().values() for rule in listed]
    shown = {rule for case in CASES for rule in case.rules}
    assert len(rules) == len(set(rules))
    assert set(rules) - shown == set(), "rules without a case"
    assert shown - set(rules) == set(), "cases that show what is no rule"


def test_cases_have_names_of_their_own_and_say_how_many_commands_they_take() -> None:
    assert [name for name, count in Counter((case.area, case.case) for case in CASES).items() if count > 1] == []
    ended = [case for case in CASES if case.status in ("COMPLETED", "FAILED")]
    assert [case.case for case in ended if case.commands is None] == []
    assert len(CASES) >= 150


def _check(case: Case, started: Started) -> None:
    answer = started.registered
    if case.warnings is not None:
        _check_warnings(case.warnings, answer.json().get("warnings", []))
    if case.status == "REFUSED":
        assert answer.status_code == 422, answer.text
        for part in case.error:
            assert part in str(answer.json()), answer.text
        return
    assert started.run is not None, answer.text
    run = started.run
    run.wait()
    assert run.status["status"] == case.status, run.status
    for part in case.error:
        assert part in f"{run.message} {run.status['error']}", run.status["error"]
    events = run.events()
    for step, expected in case.results.items():
        assert _result(run, events, step) == expected, step
    if case.result is not msgspec.UNSET:
        assert _resolved(run, run.status["result"]) == case.result
    if case.entered is not None:
        assert [event["node_name"] for event in events if event["event_type"] == "step.enter"] == case.entered
    kinds = Counter(event["event_type"] for event in events)
    assert {kind: kinds[kind] for kind in case.events} == case.events
    assert case.commands in (None, "any", kinds["command.issued"]), kinds["command.issued"]
    assert kinds[f"playbook.{case.status.lower()}"] == 1
    assert run.status["duration_seconds"] >= case.lasts_at_least_s


def _check_warnings(expected: list[str], found: list[Any]) -> None:
    for part in expected:
        assert any(part in str(warning) for warning in found), (part, found)
    if not expected:
        assert found == []


def _result(run: Run, events: list[dict[str, Any]], step: str) -> Any:
    """Return what a step's last command brought; of a loop, what each item of the last pass did, in order."""
    ended = [event for event in events if event["event_type"] == "command.completed" and event["node_name"] == step]
    assert ended, f"no command of {step!r} has completed"
    items = [event for event in ended if event["iter_index"] is not None]
    if not items:
        return _value(run, ended[-1])
    last_pass = {event["iter_index"]: event for event in items if event["loop_epoch"] == items[-1]["loop_epoch"]}
    return [_value(run, last_pass[index]) for index in sorted(last_pass)]


def _value(run: Run, event: dict[str, Any]) -> Any:
    return _resolved(run, (event["result"] or {}).get("reference"))


def _resolved(run: Run, reference: dict[str, Any] | None) -> Any:
    if reference is None:
        return None
    answer = run.api.get("/api/result/resolve", params={"ref": reference["ref"]})
    assert answer.status_code == 200, answer.text
    return merged(answer.json()) if reference.get("shape") == "pipeline" else answer.json()


def _cancel(api: httpx.Client, run: Run, step: str) -> None:
    """Cancel a run as soon as it has entered a step."""
    deadline = time.monotonic() + CANCEL_S_MAX
    while step not in run.entered():
        assert time.monotonic() < deadline, f"{step!r} was not entered"
        time.sleep(0.02)
    assert api.post(f"/api/executions/{run.id}/cancel", json={"reason": "the case says so"}).status_code == 200
