"""How long the projection waits between batches: each costs 2 ms, and as much of Postgres, with little in it too."""

PAUSE_MIN_S = 0.01  # between the beginnings of two batches: nobody sees a status that is 10 ms old as late
WORK_SHARE = 0.05  # of the time that batches take in the long run: on a busy machine they must not crowd out the runs


class Pace:
    """The turns of batches that are not full. Unit: `window_s`, the longest wait."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._free_s = 0.0  # when batches so far make up their share of the time; long ago counts for one window

    def pause_s(self, started_s: float, ended_s: float) -> float:
        """Return how long to wait after a batch: hardly at all after quiet, so that a short run is shown at once."""
        took_s = ended_s - started_s
        free_s = max(self._free_s, ended_s - self._window_s) + took_s / WORK_SHARE
        self._free_s = min(free_s, ended_s + self._window_s)
        return max(self._free_s - ended_s, PAUSE_MIN_S - took_s, 0.0)
