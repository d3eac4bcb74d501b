"""Durations, moments and sizes read as people write them."""

from datetime import UTC, timedelta, timezone

import pytest

from noetl_cli import human


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.0561, "56 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1m 00s"),
        (125, "2m 05s"),
        (3599.6, "1h 00m"),
        (90_061, "25h 01m"),
    ],
)
def test_a_duration_has_two_units_at_the_most(seconds: float, text: str) -> None:
    assert human.duration(seconds) == text


def test_a_moment_is_told_in_the_zone_that_is_asked_for() -> None:
    text = "2026-01-01T23:30:00.123456Z"
    assert human.moment(text, zone=UTC) == "2026-01-01 23:30:00"
    assert human.moment(text, zone=timezone(timedelta(hours=2))) == "2026-01-02 01:30:00"
    assert human.moment(text, zone=UTC, date=False) == "23:30:00.123"
    assert human.moment(None) == ""


def test_sizes_are_binary() -> None:
    assert [human.size(count) for count in (0, 1023, 2560, 10 * 1024**2)] == ["0 B", "1023 B", "2.5 KiB", "10.0 MiB"]
