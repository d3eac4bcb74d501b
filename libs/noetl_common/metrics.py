"""Metrics: one table of all of them, and four verbs. A name or label outside the table is a bug."""

import platform
from importlib import metadata
from typing import Literal

import msgspec
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge", "histogram"]

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
COUNTS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0)
BYTES = (64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 65536.0, 1048576.0, 16777216.0)


class Metric(msgspec.Struct, frozen=True):
    """One row of the table."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


METRICS: tuple[Metric, ...] = (
    # Every role.
    Metric("noetl_build_info", "gauge", "1, labelled with the release that runs.", ("version", "python")),
    Metric("noetl_loop_batch_seconds", "histogram", "Time of one batch that did something.", ("loop",), SECONDS),
    Metric("noetl_loop_errors_total", "counter", "Expected errors that a loop waited out.", ("loop",)),
    Metric("noetl_bus_published_total", "counter", "Messages handed to the bus."),
    Metric("noetl_bus_received_total", "counter", "Messages the bus delivered."),
    Metric("noetl_bus_dropped_total", "counter", "Messages not sent: the bus is away or too slow.", ("reason",)),
    Metric("noetl_bus_handler_errors_total", "counter", "Messages whose handler raised."),
    Metric("noetl_transport_mode", "gauge", "1 for the way doorbells travel now.", ("mode",)),
    Metric("noetl_shard_owner", "gauge", "1 while this instance owns the shard.", ("role", "shard", "instance")),
    Metric("noetl_shard_handover_seconds", "histogram", "Time without an owner at a takeover.", ("role",), SECONDS),
    Metric("noetl_fenced_writes_total", "counter", "Writes refused because the shard had a new owner.", ("role",)),
    Metric("noetl_http_requests_total", "counter", "Requests answered.", ("route", "status")),
    Metric("noetl_http_request_seconds", "histogram", "Time to answer a request.", ("route",), SECONDS),
    Metric("noetl_reference_resolve_seconds", "histogram", "Time to read one payload.", ("tier",), SECONDS),
    Metric("noetl_object_store_ops_total", "counter", "Operations on a result tier.", ("tier", "op", "outcome")),
    # ingest: append and commands.
    Metric("noetl_events_ingested_total", "counter", "Inputs appended to the log.", ("event_type",)),
    Metric("noetl_append_batch_events", "histogram", "Inputs in one append transaction.", (), COUNTS),
    Metric("noetl_append_batch_seconds", "histogram", "Time of one append transaction.", (), SECONDS),
    Metric("noetl_short_way_total", "counter", "Inputs decided before they were appended.", ("outcome",)),
    Metric("noetl_event_result_bytes", "histogram", "Size of an event's envelope.", (), BYTES),
    Metric("noetl_commands_claimed_total", "counter", "Commands given to workers.", ("pool",)),
    Metric("noetl_chunks_total", "counter", "Chunks of streamed results, by what became of them.", ("outcome",)),
    Metric("noetl_worker_chunks_total", "counter", "Chunks that a worker streamed, by ingest's answer.", ("outcome",)),
    Metric("noetl_commands_finished_total", "counter", "Commands whose report was accepted.", ("outcome",)),
    Metric("noetl_effects_repeated_total", "counter", "Effects left out: the ledger has them as applied."),
    Metric("noetl_commands_fenced_total", "counter", "Reports refused: the claim was lost."),
    Metric("noetl_commands_duplicate_total", "counter", "Reports that had been accepted before."),
    Metric("noetl_duplicate_suppressed_total", "counter", "Inputs dropped by the guard.", ("guard",)),
    Metric("noetl_commands_pending", "gauge", "Commands that wait for a worker.", ("pool",)),
    Metric("noetl_commands_inflight", "gauge", "Commands on lease.", ("pool",)),
    Metric("noetl_command_latency_seconds", "histogram", "Time of one phase of a command.", ("phase",), SECONDS),
    # ingest: routing.
    Metric("noetl_route_batch_events", "histogram", "Inputs decided in one transaction.", (), COUNTS),
    Metric("noetl_route_batch_seconds", "histogram", "Time of one decision batch.", (), SECONDS),
    Metric("noetl_route_consequences_total", "counter", "Consequences written.", ("event_type",)),
    Metric("noetl_poison_inputs_total", "counter", "Inputs that could not be routed; their run failed."),
    Metric("noetl_recovery_replayed_events", "gauge", "Inputs read again at the last takeover.", ("role", "shard")),
    Metric("noetl_replay_window_seconds", "gauge", "Time until those inputs were done again.", ("role", "shard")),
    Metric("noetl_executions_started_total", "counter", "Runs started."),
    Metric("noetl_starts_refused_total", "counter", "Starts refused: too much is under way.", ("reason",)),
    Metric("noetl_runs_admitted_total", "counter", "Runs that got a place in their concurrency group."),
    Metric("noetl_executions_ended_total", "counter", "Runs ended.", ("status",)),
    # compute.
    Metric("noetl_projection_lag_seconds", "gauge", "Age of the oldest event not yet projected.", ("shard",)),
    Metric("noetl_projection_batch_size", "histogram", "Events projected in one transaction.", (), COUNTS),
    Metric("noetl_projection_batch_seconds", "histogram", "Time of one projection batch.", (), SECONDS),
    Metric("noetl_projection_errors_total", "counter", "Events that could not be projected.", ("event_type",)),
    # meta.
    Metric("noetl_leader", "gauge", "1 while this instance leads.", ("instance",)),
    Metric("noetl_shard_assignments_total", "counter", "Shards given to an owner, by why.", ("role", "cause")),
    Metric("noetl_shards_unowned", "gauge", "Shards without a live owner.", ("role",)),
    Metric("noetl_checkpoint_age_seconds", "gauge", "Time since the shard's last checkpoint.", ("shard",)),
    Metric("noetl_reaper_reissued_total", "counter", "Commands taken back from lost workers.", ("reason",)),
    Metric("noetl_partitions_ahead", "gauge", "Whole partitions made for the time to come.", ("table",)),
    Metric("noetl_dlq_depth", "gauge", "Work given up as poison.", ("kind",)),
    # compactor.
    Metric("noetl_compacted_executions_total", "counter", "Runs folded into manifests."),
    Metric("noetl_compacted_events_total", "counter", "Events folded into manifests."),
    Metric("noetl_compactor_events_per_second", "gauge", "Speed of a shard's last batch.", ("shard",)),
    Metric("noetl_compactor_batch_seconds", "histogram", "Time of one batch of folding.", (), SECONDS),
    Metric("noetl_compactor_stragglers", "gauge", "Runs of closed ranges that must stay in the log.", ("reason",)),
    Metric("noetl_compactor_pinned", "gauge", "Runs that keep a range in the log.", ("partition",)),
    Metric("noetl_compactor_retries_total", "counter", "Steps that will be tried again.", ("phase",)),
    Metric("noetl_compactor_repaired_total", "counter", "Manifests written again: events came late."),
    Metric("noetl_partitions_dropped_total", "counter", "Ranges of the log that were dropped."),
    Metric("noetl_orphans_deleted_total", "counter", "Payloads deleted because nothing names them.", ("tier",)),
    Metric("noetl_kept_results_expired_total", "counter", "Kept results whose time was over."),
    # worker.
    Metric("noetl_tool_seconds", "histogram", "Time of one tool call.", ("tool", "outcome"), SECONDS),
    Metric("noetl_worker_slots", "gauge", "Slots of this worker.", ("state",)),
    Metric("noetl_worker_reports_total", "counter", "Reports sent, by the answer.", ("outcome",)),
    Metric("noetl_worker_claim_seconds", "histogram", "Time of one claim request that brought work.", (), SECONDS),
    Metric("noetl_result_bytes", "histogram", "Size of one result's payload.", ("tier",), BYTES),
    Metric("noetl_payload_cache_bytes", "gauge", "Payloads that this worker holds for templates."),
    Metric(
        "noetl_payload_cache_misses_total", "counter", "Payloads and groups of rows that it had to read.", ("kind",)
    ),
)

REGISTRY = CollectorRegistry()
_METRICS = {metric.name: metric for metric in METRICS}


def inc(name: str, amount: float = 1, **labels: str | int) -> None:
    """Add to a counter."""
    series = _series(name, "counter", labels)
    assert isinstance(series, Counter)
    series.inc(amount)


def observe(name: str, value: float, **labels: str | int) -> None:
    """Record one value in a histogram."""
    series = _series(name, "histogram", labels)
    assert isinstance(series, Histogram)
    series.observe(value)


def gauge(name: str, value: float, **labels: str | int) -> None:
    """Set a gauge."""
    series = _series(name, "gauge", labels)
    assert isinstance(series, Gauge)
    series.set(value)


def forget(name: str, **labels: str | int) -> None:
    """Drop one series, so that a shard given away is not shown for ever."""
    _checked(name, _METRICS[name].kind if name in _METRICS else "gauge", labels)
    _families[name].remove(*(str(labels[label]) for label in _METRICS[name].labels))
    _found.clear()


def clear(name: str) -> None:
    """Drop every series of a metric that is about to be set anew."""
    _families[name].clear()
    _found.clear()


def value(name: str, **labels: str | int) -> float:
    """Return a counter's or gauge's present value (a histogram's count); 0 when there is none yet."""
    metric = _METRICS[name]
    _checked(name, metric.kind, labels)
    sample = {"counter": name, "gauge": name, "histogram": f"{name}_count"}[metric.kind]
    return REGISTRY.get_sample_value(sample, {k: str(v) for k, v in labels.items()}) or 0.0


def render() -> bytes:
    """Return every metric in the text format that Prometheus scrapes."""
    return generate_latest(REGISTRY)


def release() -> str:
    """Return the version of the installed distribution."""
    try:
        return metadata.version("noetl")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def _checked(name: str, kind: Kind, labels: dict[str, str | int]) -> None:
    metric = _METRICS.get(name)
    assert metric is not None, f"metric {name!r} is not in the table"
    assert metric.kind == kind, f"metric {name!r} is a {metric.kind}, not a {kind}"
    assert set(labels) == set(metric.labels), f"metric {name!r}: expected labels {metric.labels}, found {list(labels)}"


def _series(name: str, kind: Kind, labels: dict[str, str | int]) -> Counter | Gauge | Histogram:
    key = (name, kind, *labels.items())
    series = _found.get(key)
    if series is None:
        _checked(name, kind, labels)
        family = _families[name]
        series = _found[key] = family.labels(**labels) if labels else family
    return series


def _family(metric: Metric) -> Counter | Gauge | Histogram:
    if metric.kind == "counter":
        return Counter(metric.name, metric.help, metric.labels, registry=REGISTRY)
    if metric.kind == "gauge":
        return Gauge(metric.name, metric.help, metric.labels, registry=REGISTRY)
    return Histogram(metric.name, metric.help, metric.labels, registry=REGISTRY, buckets=metric.buckets)


disable_created_metrics()  # type: ignore[no-untyped-call]
_found: dict[tuple[object, ...], Counter | Gauge | Histogram] = {}  # checked once, and looked up at once from then on
_families = {metric.name: _family(metric) for metric in METRICS}
ProcessCollector(registry=REGISTRY)
gauge("noetl_build_info", 1, version=release(), python=platform.python_version())
