"""The worker's pipeline with tools of the test's own: what goes on, what ends, what is set."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from noetl_common.core.duration import seconds_in
from noetl_common.core.outcome import Outcome
from noetl_common.core.playbook import Rule, Task
from noetl_common.core.results import Carried, plain
from noetl_common.core.scope import Scope, system_names
from noetl_common.core.values import Ref, Value
from noetl_common.wire import ResultRow
from services.worker.api import LoopPage
from services.worker.payloads import Payloads
from services.worker.pipeline import Ended, Machine, Pipeline, Work
from services.worker.tools import Call, dispatch, failed

EXECUTION = 77


class Stored:
    """Payloads by ref id, and how often each was read."""

    def __init__(self, payloads: dict[int, Any]) -> None:
        self.payloads = payloads
        self.reads: list[int] = []

    async def payload(self, ref: Ref) -> bytes:
        self.reads.append(ref.ref_id)
        return msgspec.json.encode(self.payloads[ref.ref_id])

    async def loop_page(self, ref: Ref, *, after: int) -> LoopPage:
        rows = [
            ResultRow(
                execution_id=EXECUTION,
                ref_id=100 + index,
                step="each",
                bytes=10,
                sha256="",
                iter_index=index,
                shape="pipeline" if isinstance(payload, dict) and "labels" in payload else "plain",
                inline=msgspec.Raw(msgspec.json.encode(payload.get("labels", payload))),
            )
            for index, payload in enumerate(self.payloads[ref.ref_id])
            if index > after and payload is not None
        ][:2]
        last = rows[-1].iter_index if rows else 0
        return LoopPage(results=rows, next_after=last if len(rows) == 2 else None)


async def no_credential(alias: str) -> dict[str, Any]:
    raise AssertionError(alias)


def task(label: str, kind: str = "echo", **fields: Any) -> Task:
    fields["rules"] = tuple(Rule(**rule) for rule in fields.pop("rules", ()))
    return Task(label=label, kind=kind, **fields)


async def run(
    *tasks: Task,
    answer: Callable[[Call], Outcome] | None = None,
    stored: Stored | None = None,
    cache_bytes: int = 1 << 20,
    calls_max: int = 1000,
    **given: Any,
) -> Ended:
    async def tool(call: Call) -> Outcome:
        if answer is None:
            return await dispatch(call) if call.kind != "echo" else Outcome(data=call.input or None)
        return answer(call)

    payloads = Payloads(stored or Stored({}), bytes_max=cache_bytes)

    def scope(variables: dict[str, Any]) -> Scope:
        return Scope(
            load=payloads.load,
            workload=Value(given.get("workload", {})),
            ctx={**given.get("ctx", {}), **{name: Value(value) for name, value in variables.items()}},
            results=given.get("results", {}),
            system=system_names(execution_id=EXECUTION, catalog_id=1),
        )

    work = Work(
        execution_id=EXECUTION,
        step="work",
        tasks=tasks,
        scope=scope({}),
        rescoped=scope,
        is_pipeline=len(tasks) > 1,
        idempotency_key="k",
        iteration=given.get("iteration", {}),
        handed=Carried(given.get("prior", {}), {}, {}),
    )
    made: Callable[[Call], Awaitable[Outcome]] = tool
    return await Pipeline(
        work, Machine(payloads=payloads, credential=no_credential, calls_max=calls_max, dispatch=made)
    ).run()


async def test_a_key_names_the_pass_of_a_task_and_not_its_retries() -> None:
    seen: list[tuple[str, int, str]] = []

    def answer(call: Call) -> Outcome:
        seen.append((call.label, call.attempt, call.idempotency_key))
        return failed("net", "away", retryable=True) if len(seen) == 1 else Outcome(data=len(seen))

    await run(
        task("get", rules=[{"when": "{{ output.status == 'error' }}", "do": "retry", "attempts": 2}]),
        task("put", rules=[{"when": "{{ output.data < 4 }}", "do": "jump", "to": "get"}]),
        answer=answer,
    )
    assert seen == [
        ("get", 1, "k.get"),
        ("get", 2, "k.get"),
        ("put", 1, "k.put"),
        ("get", 1, "k.get.2"),
        ("put", 1, "k.put.2"),
    ]


async def test_a_later_task_sees_the_results_of_earlier_ones() -> None:
    ended = await run(
        task("first", input={"n": 2}),
        task("second", input={"twice": "{{ first.n * 2 }}", "same": "{{ first.data.n }}", "prev": "{{ _prev.n }}"}),
    )
    assert ended.status == "completed"
    assert ended.labelled == {"first": {"n": 2}, "second": {"twice": 4, "same": 2, "prev": 2}}


async def test_an_error_without_a_rule_fails_the_pipeline_and_keeps_what_there_is() -> None:
    def answer(call: Call) -> Outcome:
        return failed("client_error", "no", status=404) if call.label == "second" else Outcome(data=1)

    ended = await run(task("first"), task("second"), task("third"), answer=answer)
    assert ended.status == "failed"
    assert ended.error is not None and ended.error["message"] == "no" and ended.task == "second"
    assert ended.labelled == {"first": 1}


async def test_the_data_of_a_failed_task_is_kept() -> None:
    ended = await run(
        task("only"), answer=lambda call: Outcome(status="error", data={"body": "gone"}, error={"message": "x"})
    )
    assert ended.status == "failed" and ended.labelled == {"only": {"body": "gone"}}


async def test_a_rule_may_accept_an_error() -> None:
    def answer(call: Call) -> Outcome:
        return failed("timeout", "late") if call.label == "first" else Outcome(data="done")

    rules = ({"when": "{{ output.error.kind == 'timeout' }}", "do": "continue", "set": {"ctx.late": True}},)
    ended = await run(task("first", rules=rules), task("second"), answer=answer)
    assert ended.status == "completed" and ended.variables == {"late": True}


async def test_a_retry_runs_the_task_again_and_its_last_error_stands_when_none_is_left() -> None:
    attempts: list[int] = []

    def answer(call: Call) -> Outcome:
        attempts.append(call.attempt)
        return failed("connection", f"attempt {call.attempt}")

    ended = await run(task("only", rules=({"when": True, "do": "retry", "attempts": "3", "delay": 0},)), answer=answer)
    assert attempts == [1, 2, 3]
    assert ended.status == "failed" and ended.error is not None and ended.error["message"] == "attempt 3"


async def test_the_count_of_attempts_begins_anew_once_a_task_succeeds() -> None:
    seen: list[int] = []

    def answer(call: Call) -> Outcome:
        seen.append(call.attempt)
        return failed("connection", "no") if len(seen) % 2 else Outcome(data=len(seen))

    again = {"when": "{{ output.status == 'error' }}", "do": "retry", "attempts": 2, "delay": 0}
    ended = await run(
        task("flaky", rules=(again, {"when": "{{ output.data < 6 }}", "do": "jump", "to": "flaky"}, {"do": "break"})),
        task("never"),
        answer=answer,
    )
    assert seen == [1, 2, 1, 2, 1, 2]
    assert ended.status == "completed" and ended.labelled == {"flaky": 6}


async def test_a_jump_sees_what_its_rule_set() -> None:
    count = {
        "when": "{{ (iter.n or 0) < 2 }}",
        "do": "jump",
        "to": "previous",
        "set": {"iter.n": "{{ (iter.n or 0) + 1 }}"},
    }
    ended = await run(
        task("start", input={"n": "{{ iter.n | default(0) }}"}), task("again", rules=(count,)), iteration={"item": "a"}
    )
    assert ended.labelled["start"] == {"n": 2}


async def test_a_break_ends_the_pipeline_well() -> None:
    ended = await run(task("first", rules=({"do": "break"},)), task("second"))
    assert ended.status == "completed" and list(ended.labelled) == ["first"]


async def test_a_rule_may_fail_a_success() -> None:
    ended = await run(task("only", input={"n": 1}, rules=({"when": "{{ output.data.n == 1 }}", "do": "fail"},)))
    assert ended.status == "failed" and ended.error is not None and ended.error["code"] == "FAILED_BY_RULE"
    assert ended.labelled == {"only": {"n": 1}}


async def test_a_jump_to_nowhere_fails_and_says_where_it_may_go() -> None:
    ended = await run(task("only", rules=({"do": "jump", "to": "gone"},)))
    assert ended.error is not None and "gone" in ended.error["message"] and "only" in ended.error["message"]


async def test_a_jump_without_end_stops_at_the_ceiling() -> None:
    ended = await run(task("only", rules=({"do": "jump", "to": "only"},)), calls_max=150)
    assert ended.error is not None and ended.error["code"] == "PIPELINE_CALLS_EXCEEDED"


async def test_a_set_of_a_task_is_local_to_the_pipeline_unless_it_says_ctx() -> None:
    ended = await run(
        task("fetch", input={"page": [1, 2]}, set={"found": "{{ output }}", "ctx.count": "{{ output.page | length }}"}),
        task("use", input={"a": "{{ found.page }}", "b": "{{ ctx.count }}", "c": "{{ count }}"}),
    )
    assert ended.labelled["use"] == {"a": [1, 2], "b": 2, "c": 2}
    assert ended.variables == {"count": 2}


async def test_a_template_error_fails_the_task_with_its_place_and_its_rules_may_accept_it() -> None:
    broken = task("only", input={"x": "{{ 1 / 0 }}"})
    ended = await run(broken)
    assert ended.error is not None and ended.error["kind"] == "template"
    assert "step 'work', tool.input.x" in ended.error["message"] and "1 / 0" in ended.error["message"]
    accepted = msgspec.structs.replace(broken, rules=(Rule(when="{{ output.error.kind == 'template' }}"),))
    assert (await run(accepted)).status == "completed"


async def test_data_that_looks_like_a_template_is_not_rendered_again() -> None:
    ended = await run(task("only", input={"x": "{{ workload.text }}"}), workload={"text": "{{ 1 + 1 }}"})
    assert ended.labelled == {"only": {"x": "{{ 1 + 1 }}"}}


async def test_a_payload_is_loaded_when_a_template_reads_it_and_once_only() -> None:
    stored = Stored({1: {"rows": [5, 6]}, 2: {"n": 3}})
    results = {"big": Ref(execution_id=EXECUTION, ref_id=1), "other": Ref(execution_id=EXECUTION, ref_id=2)}
    ended = await run(
        task("a", input={"x": "{{ big.rows[1] }}", "y": "{{ other.n }}"}),
        task("b", input={"x": "{{ big.rows[0] }}"}),
        stored=stored,
        results=results,
    )
    assert ended.labelled == {"a": {"x": 6, "y": 3}, "b": {"x": 5}}
    assert sorted(stored.reads) == [1, 2]


async def test_payloads_larger_than_the_cache_are_still_read_together() -> None:
    stored = Stored({1: {"v": "a" * 500}, 2: {"v": "b" * 500}})
    results = {"one": Ref(execution_id=EXECUTION, ref_id=1), "two": Ref(execution_id=EXECUTION, ref_id=2)}
    ended = await run(
        task("a", input={"x": "{{ (one.v | length) + (two.v | length) }}"}),
        stored=stored,
        results=results,
        cache_bytes=64,
    )
    assert ended.labelled == {"a": {"x": 1000}}


async def test_a_loop_result_is_put_together_from_its_items_in_order() -> None:
    stored = Stored({9: [{"a": 1}, {"labels": {"x": {"b": 2}, "y": {"c": 3}}}, None, {"a": 4}]})
    ref = Ref(execution_id=EXECUTION, ref_id=9, shape="loop", label="each", epoch=5, size=4, failed=1)
    ended = await run(
        task("a", input={"all": "{{ each.results }}", "s": "{{ each.stats }}"}), stored=stored, results={"each": ref}
    )
    assert plain(ended.labelled["a"]["all"]) == [{"a": 1}, {"b": 2, "c": 3}, None, {"a": 4}]
    assert ended.labelled["a"]["s"] == {"total": 4, "success": 3, "failed": 1}


async def test_results_of_earlier_segments_are_seen_and_stay_in_the_result() -> None:
    ended = await run(task("after", input={"x": "{{ before.n }}"}), prior={"before": {"n": 1}})
    assert ended.labelled == {"before": {"n": 1}, "after": {"x": 1}}


async def test_a_tool_that_raises_unforeseen_fails_its_task_only() -> None:
    def answer(call: Call) -> Outcome:
        raise ValueError("surprise")

    ended = await run(task("only"), answer=answer)
    assert ended.error is not None and ended.error["kind"] == "internal" and "surprise" in ended.error["message"]


async def test_an_unknown_tool_is_an_error_that_names_it() -> None:
    ended = await run(task("only", kind="carrier_pigeon"))
    assert (
        ended.error is not None and ended.error["code"] == "TOOL_UNKNOWN" and "carrier_pigeon" in ended.error["message"]
    )


async def test_a_noop_returns_its_result_or_null() -> None:
    ended = await run(
        task("a", kind="noop"),
        task("b", kind="noop", config={"result": {"n": "{{ iter.item }}"}}),
        iteration={"item": 3},
    )
    assert ended.labelled == {"a": None, "b": {"n": 3}}


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (30, 30.0),
        ("45", 45.0),
        ("2m", 120.0),
        ("1h", 3600.0),
        ("500ms", 0.5),
        ("soon", 7.0),
        (None, 7.0),
        (0, 7.0),
        (True, 7.0),
    ],
)
def test_a_timeout_is_read_in_every_spelling(written: Any, seconds: float) -> None:
    assert seconds_in(written, 7.0) == seconds
