"""What processes and their metrics say while something runs: memory and CPU from /proc, lag from /metrics."""

import math
import re
import threading
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType

import httpx

from benchmarks.cpu import Cpu
from noetl_cli.state_dir import Running

PAUSE_S = 0.25
MEMORY_EVERY = 4  # samples: adding up the pages of Postgres holds up what is measured
LAG = re.compile(r"^noetl_projection_lag_seconds(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


class Sampler:
    """Sample a stack from a thread of its own for as long as the `with` block lasts.

    Shapes: `servers` {name: pid} of what runs beside the roles; `rss_bytes` {role: peak, the largest of its
    processes}; `lags_s` one entry a sample, the worst shard's; `cpu` of the block, once it has ended.
    """

    def __init__(self, running: Running, *, servers: Mapping[str, int]) -> None:
        self.rss_bytes: dict[str, int] = {}
        self.lags_s: list[float] = []
        self.cpu = Cpu({}, 0.0)
        self._postgres_pid = servers.get("postgres")
        self._roles = [(role.role, role.pid) for role in running.roles]
        self._roles += [(name, pid) for name, pid in servers.items() if name != "postgres"]
        self._families = families(running, servers)
        self._metrics = [f"http://127.0.0.1:{role.port}/metrics" for role in running.roles if role.role == "compute"]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler")

    def __enter__(self) -> "Sampler":
        """Begin."""
        self._began = Cpu.now(self._families)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take a last sample and end."""
        self.cpu = Cpu.now(self._families).since(self._began)
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with httpx.Client(timeout=2.0, trust_env=False) as client:
            for number in count():
                is_last = self._stop.wait(PAUSE_S)
                if is_last or number % MEMORY_EVERY == 0:
                    self._sample_memory()
                self._sample_lag(client)
                if is_last:
                    return

    def _sample_memory(self) -> None:
        for role, pid in self._roles:
            self._raise_peak(role, _memory_bytes(pid, "status", "VmHWM"))
        if self._postgres_pid:
            family = [self._postgres_pid, *_children(self._postgres_pid)]
            # Proportional: pages that the server's processes share count once.
            self._raise_peak("postgres", sum(_memory_bytes(pid, "smaps_rollup", "Pss") for pid in family))

    def _raise_peak(self, role: str, found_bytes: int) -> None:
        self.rss_bytes[role] = max(self.rss_bytes.get(role, 0), found_bytes)

    def _sample_lag(self, client: httpx.Client) -> None:
        try:
            texts = [client.get(url).text for url in self._metrics]
        except httpx.TransportError:
            return  # the process is being restarted: no sample
        lags_s = [float(value) for text in texts for value in LAG.findall(text)]
        if lags_s:
            self.lags_s.append(max(lags_s))


def families(running: Running, servers: Mapping[str, int]) -> dict[str, list[int]]:
    """Return the first processes of each role and server: {"worker": [pid, pid], "postgres": [pid], ...}."""
    found: dict[str, list[int]] = {}
    for role in running.roles:
        found.setdefault(role.role, []).append(role.pid)
    return {**found, **{name: [pid] for name, pid in servers.items()}}


def percentile(values: Sequence[float], fraction: float) -> float:
    """Return the smallest value that at least `fraction` of them do not exceed; 0 when there is none."""
    ordered = sorted(values)
    return ordered[max(math.ceil(fraction * len(ordered)) - 1, 0)] if ordered else 0.0


def hardware() -> dict[str, object]:
    """Return what this machine is."""
    text = _text(Path("/proc/cpuinfo"))
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    memory = re.search(r"^MemTotal:\s+(\d+) kB", _text(Path("/proc/meminfo")), re.MULTILINE)
    return {
        "cpu": model.group(1) if model else "unknown",
        "cores": text.count("\nprocessor") + text.startswith("processor"),
        "memory_gb": round(int(memory.group(1)) / 1e6, 1) if memory else 0,
    }


def _memory_bytes(pid: int, file: str, field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", _text(Path(f"/proc/{pid}/{file}")), re.MULTILINE)
    return int(found.group(1)) * 1024 if found else 0


def _children(pid: int) -> list[int]:
    return [int(child) for child in _text(Path(f"/proc/{pid}/task/{pid}/children")).split()]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""  # the process has ended, or this system has no /proc
