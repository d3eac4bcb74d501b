"""The metric table: its conventions, and that nothing outside it can be counted."""

import ast
import re
from pathlib import Path

import pytest

from noetl_common import metrics
from noetl_common.metrics import METRICS

ROOT = Path(__file__).parents[2]
VERBS = {"inc": "counter", "observe": "histogram", "gauge": "gauge"}
SOURCES = [path for folder in ("services", "libs") for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_keeps_the_naming_rules(metric: metrics.Metric) -> None:
    assert re.fullmatch(r"noetl_[a-z][a-z_]*", metric.name)
    assert metric.help.endswith(".")
    assert (metric.kind == "counter") == metric.name.endswith("_total")
    assert (metric.kind == "histogram") == bool(metric.buckets)
    assert metric.buckets == tuple(sorted(set(metric.buckets)))
    # Labels are bounded: nothing that grows with the number of runs.
    assert not {"execution_id", "event_id", "command_id", "worker_id", "path"} & set(metric.labels)


def test_no_name_stands_twice() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_what_is_counted_is_rendered() -> None:
    before = metrics.value("noetl_events_ingested_total", event_type="test")
    metrics.inc("noetl_events_ingested_total", 2, event_type="test")
    metrics.observe("noetl_route_batch_events", 7)
    metrics.gauge("noetl_projection_lag_seconds", 1.5, shard=3)
    assert metrics.value("noetl_events_ingested_total", event_type="test") == before + 2
    text = metrics.render().decode()
    assert 'noetl_projection_lag_seconds{shard="3"} 1.5' in text
    assert 'noetl_route_batch_events_bucket{le="10.0"}' in text
    assert "noetl_build_info{" in text
    assert "_created" not in text


def test_a_forgotten_series_is_not_shown_any_more() -> None:
    metrics.gauge("noetl_shard_owner", 1, role="test", shard=9, instance="i")
    metrics.forget("noetl_shard_owner", role="test", shard=9, instance="i")
    assert 'role="test",shard="9"' not in metrics.render().decode()


def test_forgetting_what_was_never_shown_does_nothing() -> None:
    metrics.forget("noetl_shard_owner", role="never", shard=1, instance="i")


def test_an_unknown_name_label_or_kind_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="not in the table"):
        metrics.inc("noetl_nonsense_total")
    with pytest.raises(AssertionError, match="expected labels"):
        metrics.inc("noetl_events_ingested_total", 1, shard=3)
    with pytest.raises(AssertionError, match="expected labels"):
        metrics.inc("noetl_events_ingested_total")
    with pytest.raises(AssertionError, match="is a counter, not a gauge"):
        metrics.gauge("noetl_events_ingested_total", 1, event_type="x")


def test_every_call_in_the_code_names_a_metric_of_the_table_with_its_labels() -> None:
    table = {metric.name: metric for metric in METRICS}
    wrong = []
    for path in SOURCES:
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
                continue
            name, owner = call.args[0], call.func.value
            if not (isinstance(owner, ast.Name) and owner.id == "metrics" and call.func.attr in VERBS):
                continue
            metric = table.get(str(name.value)) if isinstance(name, ast.Constant) else None
            labels = {keyword.arg for keyword in call.keywords}
            if metric is None or metric.kind != VERBS[call.func.attr] or labels != set(metric.labels):
                wrong.append(f"{path.relative_to(ROOT)}:{call.lineno} {ast.unparse(call)}")
    assert wrong == []
