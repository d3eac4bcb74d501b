"""What ingest decides without a database: guards, limits, foreign shapes."""

import pytest

from noetl_common.core.values import TierRule, ref_in
from noetl_common.errors import ConfigError, Invalid, TooLarge, Unauthorized
from noetl_common.store.results import ResultStore
from services.ingest.auth import Guard, guard_of, is_loopback
from services.ingest.foreign import ForeignBatch, ForeignEvent, convert
from services.ingest.requests import check_nesting

STORE = ResultStore([], TierRule(default="db"))
TOKENS = '{"a-token-of-some-length": ["read"], "the-admin-of-them-all": ["admin"]}'


def test_without_tokens_only_a_loopback_address_is_served() -> None:
    for host in ("127.0.0.1", "localhost", "::1"):
        assert guard_of(auth="none", tokens="", host=host, insecure_bind=False)
    with pytest.raises(ConfigError, match="NOETL_INSECURE_BIND"):
        guard_of(auth="none", tokens="", host="0.0.0.0", insecure_bind=False)
    assert guard_of(auth="none", tokens="", host="0.0.0.0", insecure_bind=True)
    assert not is_loopback("example.com")


def test_without_tokens_what_a_browser_sends_for_another_site_is_refused() -> None:
    guard = guard_of(auth="none", tokens="", host="127.0.0.1", insecure_bind=False)
    for host in ("127.0.0.1:8082", "localhost:8082", "[::1]:8082", ""):
        guard.check_origin({"host": host})
        guard.check_origin({"host": host, "origin": "http://localhost:3000"})
    for headers in (
        {"host": "127.0.0.1:8082", "origin": "https://evil.example"},
        {"host": "127.0.0.1:8082", "origin": "null"},
        {"host": "rebound.example:8082"},
        {"host": "[bad"},
    ):
        with pytest.raises(Unauthorized) as refused:
            guard.check_origin(headers)
        assert refused.value.status == 403
    guard_of(auth="token", tokens=TOKENS, host="0.0.0.0", insecure_bind=False).check_origin({"host": "noetl.example"})
    guard_of(auth="none", tokens="", host="0.0.0.0", insecure_bind=True).check_origin({"host": "ingest:8082"})


@pytest.mark.parametrize("tokens", ["", "[]", "{}", '{"short": ["read"]}', '{"a-token-of-some-length": ["root"]}'])
def test_malformed_tokens_stop_the_start_without_being_shown(tokens: str) -> None:
    with pytest.raises(ConfigError) as caught:
        guard_of(auth="token", tokens=tokens, host="0.0.0.0", insecure_bind=False)
    assert "a-token-of-some-length" not in str(caught.value)


def test_a_scope_is_asked_for_and_admin_has_them_all() -> None:
    guard = guard_of(auth="token", tokens=TOKENS, host="0.0.0.0", insecure_bind=False)
    guard.check("Bearer a-token-of-some-length", ("read", "write"))
    guard.check("bearer the-admin-of-them-all", ("worker",))
    for header in ("", "Bearer other", "Basic a-token-of-some-length"):
        with pytest.raises(Unauthorized) as unknown:
            guard.check(header, ("read",))
        assert unknown.value.status == 401
    with pytest.raises(Unauthorized) as lacking:
        guard.check("Bearer a-token-of-some-length", ("write",))
    assert lacking.value.status == 403
    Guard(None).check("", ("admin",))


def test_nesting_is_counted_outside_strings() -> None:
    check_nesting(b"[" * 64 + b"]" * 64)
    check_nesting(b'{"a":' * 64 + b"1" + b"}" * 64)
    check_nesting(b'{"a": "' + b"[{" * 500 + b'\\"[[[["}')
    check_nesting(b"[" + b"[]," * 1000 + b"[]]")
    for deep in (b"[" * 65 + b"]" * 65, b'[{"a":' * 33 + b"1" + b"}]" * 33):
        with pytest.raises(TooLarge):
            check_nesting(deep)


async def test_informative_events_are_acknowledged_and_not_stored() -> None:
    names = ("command.claimed", "command_started", "step.enter", "call.partial", "loop.item")
    events = [ForeignEvent(name=name, execution_id=1) for name in names]
    converted = await convert(ForeignBatch(events=events, worker_id="w"), STORE)
    assert converted.reports == [] and converted.places == [None] * len(names)


async def test_a_foreign_failure_keeps_its_error_and_nothing_else() -> None:
    event = ForeignEvent(
        event_type="action_failed",
        execution_id=5,
        node_name="s",
        context={"command_id": "77", "error": {"message": "boom", "code": "X", "rows": [1]}},
        meta={"attempt": 2},
    )
    [report] = (await convert(ForeignBatch(events=[event]), STORE)).reports
    assert (report.event_type, report.command_id, report.attempt, report.step) == ("command.failed", 77, 2, "s")
    assert report.result.error == {"message": "boom", "code": "X"}


async def test_a_foreign_result_becomes_a_row_and_a_reference() -> None:
    event = ForeignEvent(
        name="command.completed", execution_id=5, step="s", payload={"command_id": 7, "result": {"rows": [1]}}
    )
    [report] = (await convert(ForeignBatch(events=[event]), STORE)).reports
    [row] = report.results
    assert row.inline is not None and bytes(row.inline) == b'{"rows":[1]}'
    assert report.result.reference is not None and ref_in(report.result.reference).ref_id == row.ref_id
    assert report.result.context is None


@pytest.mark.parametrize(
    ("event", "pointer"),
    [
        (ForeignEvent(name="nonsense", execution_id=1), "/events/0/name"),
        (ForeignEvent(name="command.completed", execution_id=1), "/events/0/meta/command_id"),
        (ForeignEvent(name="command.completed", meta={"command_id": 1}), "/events/0/execution_id"),
    ],
)
async def test_a_foreign_event_that_says_too_little_is_refused(event: ForeignEvent, pointer: str) -> None:
    with pytest.raises(Invalid) as caught:
        await convert(ForeignBatch(events=[event]), STORE)
    assert caught.value.pointer == pointer
