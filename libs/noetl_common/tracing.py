"""Traces: spans that cost nothing unless OpenTelemetry's SDK is installed and told where to send them."""

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Span, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from noetl_common.log import get_logger

AttributeValue = str | bool | int | float

log = get_logger(__name__)
_tracer = trace.get_tracer("noetl")
_propagator = TraceContextTextMapPropagator()


def configure(service: str, *, environ: Mapping[str, str] | None = None) -> Callable[[], None]:
    """Send spans over OTLP when an endpoint is set; return what to call at the stop.

    OTEL_EXPORTER_OTLP_ENDPOINT turns it on, OTEL_SDK_DISABLED=true off, the other OTEL_ variables mean what
    OpenTelemetry says. Without the `otel` extra this only says so in the log.
    """
    given = os.environ if environ is None else environ
    wanted = bool(given.get("OTEL_EXPORTER_OTLP_ENDPOINT") or given.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))
    if not wanted or given.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return _nothing
    if not _installed("opentelemetry.sdk") or not _installed("opentelemetry.exporter.otlp.proto.http"):
        log.warning("tracing.not_installed", hint="pip install 'noetl[otel]'")
        return _nothing
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    name = given.get("OTEL_SERVICE_NAME") or f"noetl-{service}"
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider.shutdown


@contextmanager
def span(name: str, /, **attributes: AttributeValue) -> Iterator[Span]:
    """Time what stands inside as a span; an exception is noted on it and passes through.

    Attribute names are written with `_` for the dots: execution_id, messaging_system.
    """
    with _tracer.start_as_current_span(name, attributes=attributes, record_exception=True) as current:
        try:
            yield current
        except Exception as error:
            current.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise


def traceparent() -> str:
    """Return the W3C header of the current span, to travel with a message; empty when there is none."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return carrier.get("traceparent", "")


@contextmanager
def from_traceparent(header: str) -> Iterator[None]:
    """Make the sender's span the parent of the spans inside; an empty or broken header changes nothing."""
    if not header:
        yield
        return
    token = attach(_propagator.extract({"traceparent": header}, context=Context()))
    try:
        yield
    finally:
        detach(token)


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _nothing() -> None:
    """Stand in for a shutdown when nothing was started."""
