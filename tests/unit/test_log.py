"""Log lines: their shape, and what they never show."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from noetl_common import log as logs
from noetl_common.log import JsonFormatter, get_logger

log = get_logger("tests.log")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    written = io.StringIO()
    logs.configure(role="ingest", instance="ingest-1", level="debug", stream=written)
    yield written
    logs.unconfigure()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_an_event_with_its_values(stream: io.StringIO) -> None:
    log.info("shard.acquired", shard_id=3, epoch=7)
    (line,) = lines(stream)
    assert list(line)[:6] == ["ts", "level", "event", "logger", "service", "instance"]
    assert line["ts"].endswith("Z")
    del line["ts"]
    assert line == {
        "level": "info",
        "event": "shard.acquired",
        "logger": "tests.log",
        "service": "ingest",
        "instance": "ingest-1",
        "shard_id": 3,
        "epoch": 7,
    }


def test_bound_values_ride_on_every_line(stream: io.StringIO) -> None:
    with logs.bound(service="meta", execution_id=5):
        log.bind(shard_id=2).info("one")
    log.info("two")
    one, two = lines(stream)
    assert (one["service"], one["execution_id"], one["shard_id"]) == ("meta", 5, 2)
    assert two["service"] == "ingest" and "shard_id" not in two and "execution_id" not in two


def test_secrets_are_hidden_by_their_key(stream: io.StringIO) -> None:
    log.info("x", password="p1", API_KEY="p2", headers={"Authorization": "p3", "ok": "seen"}, access_token="p4")
    text = stream.getvalue()
    assert not any(secret in text for secret in ("p1", "p2", "p3", "p4"))
    assert "seen" in text


def test_a_claim_token_is_no_secret(stream: io.StringIO) -> None:
    log.info("x", claim_token=12)
    assert lines(stream)[0]["claim_token"] == 12


def test_a_registered_value_is_hidden_wherever_it_stands(stream: io.StringIO) -> None:
    logs.redact("s3cr3t-value")
    try:
        raise ValueError("failed with s3cr3t-value")
    except ValueError:
        log.exception("url s3cr3t-value", url="http://u:s3cr3t-value@h", nested=[{"a": ("s3cr3t-value",)}])
    logging.getLogger("library").error("text %s", "s3cr3t-value")
    assert "s3cr3t-value" not in stream.getvalue()
    assert lines(stream)[0]["url"] == "http://u:***@h"


def test_a_library_s_line_has_the_same_shape(stream: io.StringIO) -> None:
    logging.getLogger("library").warning("slow: %d ms", 12)
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["logger"], line["service"]) == (
        "slow: 12 ms",
        "warning",
        "library",
        "ingest",
    )


def test_an_exception_comes_with_its_traceback(stream: io.StringIO) -> None:
    try:
        raise KeyError("k")
    except KeyError:
        log.exception("loop.bug", loop="route")
    (line,) = lines(stream)
    assert line["error"] == "KeyError: 'k'"
    assert "Traceback" in line["traceback"] and line["loop"] == "route"


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_nothing_that_is_logged_can_raise(stream: io.StringIO) -> None:
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    log.info(
        "x", hostile=Hostile(), cycle=cycle, of={1, 2}, surrogate="\ud800", big=10**30, nan=float("nan"), b=b"\xff"
    )
    (line,) = lines(stream)
    assert "without a text" in line["hostile"]
    assert (line["surrogate"], line["big"], line["nan"], line["b"]) == ("\\ud800", str(10**30), None, r"b'\xff'")


def test_a_library_s_wrong_format_string_is_written_as_it_is() -> None:
    record = logging.LogRecord("library", logging.WARNING, "f.py", 1, "wrong %d", ("format",), None)
    assert json.loads(JsonFormatter().format(record))["event"] == "wrong %d (TypeError while formatting)"


def test_a_closed_stream_does_not_stop_the_work() -> None:
    written = io.StringIO()
    logs.configure(role="test", stream=written)
    written.close()
    log.info("into the void")
    logs.unconfigure()


def test_a_long_value_is_cut(stream: io.StringIO) -> None:
    log.info("x", text="a" * 100_000)
    assert len(lines(stream)[0]["text"]) < 10_000


def test_the_text_form_is_one_readable_line(stream: io.StringIO) -> None:
    logs.configure(role="ingest", fmt="text", stream=stream)
    log.info("shard.acquired", shard_id=3)
    assert stream.getvalue().strip().endswith("info    ingest shard.acquired logger=tests.log shard_id=3")


def test_a_level_below_the_configured_one_is_not_written(stream: io.StringIO) -> None:
    logs.configure(role="ingest", level="warning", stream=stream)
    log.info("x")
    log.warning("y")
    assert [line["event"] for line in lines(stream)] == ["y"]
