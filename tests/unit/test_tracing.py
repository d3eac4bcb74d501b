"""Spans cost nothing without an SDK, and a trace crosses processes in one header."""

import pytest
from opentelemetry import trace

from noetl_common import tracing

HEADER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_without_an_endpoint_nothing_is_configured() -> None:
    tracing.configure("ingest", environ={})()
    tracing.configure("ingest", environ={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"})()
    with tracing.span("append", shard_id=3) as span:
        assert not span.is_recording()


def test_outside_a_trace_there_is_no_header() -> None:
    assert tracing.traceparent() == ""


def test_inside_a_sender_s_span_its_trace_goes_on() -> None:
    with tracing.from_traceparent(HEADER):
        assert tracing.traceparent() == HEADER
        with tracing.span("append"):
            assert tracing.traceparent().split("-")[1] == HEADER.split("-")[1]
    assert tracing.traceparent() == ""


@pytest.mark.parametrize("header", ["", "nonsense", "00-zz-zz-01"])
def test_a_broken_header_changes_nothing(header: str) -> None:
    with tracing.from_traceparent(header):
        assert tracing.traceparent() == ""


def test_an_exception_passes_through_a_span() -> None:
    with pytest.raises(ValueError, match="inside"), tracing.span("append"):
        raise ValueError("inside")
    assert trace.get_current_span() is trace.INVALID_SPAN
