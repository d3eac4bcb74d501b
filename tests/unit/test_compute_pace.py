"""Batches of the projection leave time for others."""

import pytest

from services.compute.pace import PAUSE_MIN_S, WORK_SHARE, Pace

WINDOW_S = 0.1


def test_after_quiet_the_next_batch_follows_soon() -> None:
    pace = Pace(WINDOW_S)
    assert pace.pause_s(50.0, 50.004) == pytest.approx(PAUSE_MIN_S - 0.004)
    assert pace.pause_s(50.02, 50.05) > PAUSE_MIN_S, "what was saved up is spent"
    assert pace.pause_s(60.0, 60.004) == pytest.approx(PAUSE_MIN_S - 0.004), "quiet again"


@pytest.mark.parametrize("took_s", [0.001, 0.002, 0.004])
def test_in_the_long_run_batches_take_their_share_of_the_time(took_s: float) -> None:
    pace, now_s = Pace(WINDOW_S), 50.0
    for _ in range(1_000):
        ended_s = now_s + took_s
        now_s = ended_s + pace.pause_s(now_s, ended_s)
    assert 1_000 * took_s / (now_s - 50.0) == pytest.approx(WORK_SHARE, rel=0.02)


def test_no_wait_is_longer_than_the_window() -> None:
    pace, now_s = Pace(WINDOW_S), 50.0
    for _ in range(10):
        pause_s = pace.pause_s(now_s, now_s + 3.0)
        assert 0 <= pause_s <= WINDOW_S + 1e-9
        now_s += 3.0 + pause_s


def test_without_a_window_only_the_least_pause_is_made() -> None:
    pace = Pace(0.0)
    assert [pace.pause_s(50.0, 50.002), pace.pause_s(50.01, 50.03)] == [pytest.approx(PAUSE_MIN_S - 0.002), 0.0]
