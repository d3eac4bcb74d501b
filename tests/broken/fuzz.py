"""Fuzz the parser, the linter, the plan, the graph, the templates and the API: `python -m tests.broken.fuzz --help`.

Whatever is sent in, a call ends within its limit with an answer or one of the errors that are meant for it.
"""

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import msgspec

from noetl_cli.graph.model import graph_of
from noetl_cli.graph.svg import svg_of
from noetl_cli.graph.text import dot_of, mermaid_of
from noetl_cli.plan import plan_of
from noetl_common.core.lint import lint
from noetl_common.core.parse import parse
from noetl_common.core.reads import texts_in
from noetl_common.core.scope import NeedPayload, Scope
from noetl_common.core.templates import holds, names, render, render_text
from noetl_common.core.values import Value
from noetl_common.errors import PlaybookError, TemplateFailed
from noetl_common.secrets import generate_key
from services.ingest.app import app as ingest_app
from services.ingest.config import Config as IngestConfig
from services.meta.app import app as meta_app
from services.meta.config import Config as MetaConfig
from tests.broken.cases import GOOD
from tests.broken.mutate import mutated, template
from tests.running import start_role
from tests.servers import clone, drop, shared_postgres

CPU_S_MAX = 5.0  # of one call; the longest of them are bounded by counting their work, not by a clock
ANSWER_S_MAX = 10.0
DOCUMENTS_A_REQUEST = 10
RESULT_BYTES_MAX = 64 * 1024 * 1024
EXAMPLES = Path(__file__).parents[2] / "examples"
WORKLOAD = {"x": 1, "base": "http://a", "rows": [1, {"a": "b"}], "limit": 3, "n": None, "a": {"b": {"c": "é"}}}


class Hang(BaseException):
    """A call used more processor time than it may."""


class Tally(msgspec.Struct):
    """What was done and what was found; `worst_s` the processor time of the longest call of each kind."""

    calls: Counter[str] = msgspec.field(default_factory=Counter)
    taken: Counter[str] = msgspec.field(default_factory=Counter)
    worst_s: dict[str, float] = {}
    faults: dict[str, str] = {}

    def fault(self, what: str, told: str, given: str) -> None:
        """Keep one example of each fault."""
        self.faults.setdefault(f"{what}: {told}", given[:20_000])


def fuzz_core(rnd: random.Random, text: str, tally: Tally) -> bool:
    """Send one document through all that works on documents; return whether it parses."""
    found = _tried(tally, "parse", lambda: parse(text), PlaybookError, given=text)
    if found is None:
        return False
    playbook, _warnings = found
    _tried(tally, "lint", lambda: lint(text, playbook), given=text)
    _tried(tally, "plan", lambda: plan_of(text, {"x": rnd.choice((1, "a", None, [], {}))}), given=text)
    drawn = _tried(tally, "graph", lambda: graph_of(playbook), given=text)
    if drawn is not None:
        _tried(tally, "svg", lambda: ElementTree.fromstring(svg_of(drawn)), given=text)
        _tried(tally, "text", lambda: (mermaid_of(drawn), dot_of(drawn)), given=text)
    for step in playbook.steps.values():
        for task in step.tasks:
            for source in texts_in(task.config):
                fuzz_template(source, tally)
    return True


def fuzz_template(source: str, tally: Tally) -> None:
    """Render one text in the three ways that texts are rendered."""
    meant = (TemplateFailed, NeedPayload)
    value = _tried(tally, "render", lambda: render(source, _scope(), where="fuzz"), *meant, given=source)
    if value is not None and _size(value) > RESULT_BYTES_MAX:
        tally.fault("render", f"a value of more than {RESULT_BYTES_MAX} bytes", source)
    _tried(tally, "code", lambda: render_text(source, _scope(), where="fuzz"), *meant, given=source)
    _tried(tally, "condition", lambda: holds(source, _scope(), where="fuzz"), *meant, given=source)
    _tried(tally, "names", lambda: names(source), given=source)


async def fuzz_api(rnd: random.Random, text: str, tally: Tally, *, client: httpx.AsyncClient) -> None:
    """Register a document, start it when it was taken, and have a template rendered."""
    answer = await _asked(tally, client, "/api/catalog/register", {"content": text})
    if answer is not None and answer.status_code == 200:
        wish = {"catalog_id": answer.json()["catalog_id"], "payload": rnd.choice(({}, {"x": 1}, {"rows": None}))}
        await _asked(tally, client, "/api/execute", wish)
    await _asked(tally, client, "/api/context/render", {"template": template(rnd), "context": WORKLOAD})


async def fuzz(seeds: list[str], *, seed: int, seconds: float, client: httpx.AsyncClient) -> Tally:
    """Fuzz for as long as was said; the same seed sends the same things."""
    rnd = random.Random(seed)
    tally = Tally()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        base = rnd.choice(seeds)
        text = mutated(rnd, base)
        parses = fuzz_core(rnd, text, tally)
        if parses and rnd.random() < 0.3:
            seeds[rnd.randrange(len(seeds))] = text if rnd.random() < 0.5 else base
        fuzz_template(template(rnd), tally)
        if tally.calls["parse"] % DOCUMENTS_A_REQUEST == 0:
            await fuzz_api(rnd, text, tally, client=client)
        await asyncio.sleep(0)
    return tally


def seeds_of(folders: Iterable[Path] = (EXAMPLES,)) -> list[str]:
    """Return the documents to begin with: the good one, and every playbook in the folders."""
    return [GOOD, *(path.read_text("utf-8") for folder in folders for path in sorted(folder.rglob("*.yaml")))]


def _tried(tally: Tally, what: str, call: Callable[[], Any], *meant: type[Exception], given: str) -> Any:
    """Return what a call gives, None when it refused as it should; anything else is a fault."""
    tally.calls[what] += 1
    began_s = time.process_time()
    value = None
    try:
        with _limited():
            value = call()
        tally.taken[what] += 1
    except meant:
        pass
    except Hang:
        tally.fault(what, f"more than {CPU_S_MAX} s of processor time", given)
    except Exception as bug:  # the fuzzer's subject: whatever else is raised is a bug
        last = traceback.extract_tb(bug.__traceback__)[-1]
        tally.fault(what, f"{type(bug).__name__} in {last.name}, {Path(last.filename).name}: {bug}"[:300], given)
    tally.worst_s[what] = max(tally.worst_s.get(what, 0.0), time.process_time() - began_s)
    return value


@contextmanager
def _limited() -> Iterator[None]:
    def raise_hang(_number: int, _frame: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGVTALRM, raise_hang)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


async def _asked(tally: Tally, client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> httpx.Response | None:
    tally.calls[path] += 1
    content = msgspec.json.encode(body)
    began_s = time.monotonic()
    try:
        answer = await client.post(path, content=content, timeout=ANSWER_S_MAX)
    except httpx.HTTPError as exc:
        tally.fault(path, f"no answer: {type(exc).__name__}", content.decode())
        return None
    tally.worst_s[path] = max(tally.worst_s.get(path, 0.0), time.monotonic() - began_s)
    tally.taken[path] += answer.status_code < 400
    if answer.status_code >= 500:
        tally.fault(path, f"{answer.status_code} {answer.text[:200]}", content.decode())
    elif answer.status_code >= 400 and not answer.json().get("error"):
        tally.fault(path, f"{answer.status_code} without an error", content.decode())
    return answer


def _scope() -> Scope:
    system = {"execution_id": "1", "job": {"id": "1"}, "event": {"name": "call.done"}}
    return Scope(load=_load_nothing, workload=Value(WORKLOAD), ctx={"a": Value({"b": 1})}, results={}, system=system)


def _load_nothing(ref: Any, key: str | None) -> Any:
    raise AssertionError("there are no results")


def _size(value: Any) -> int:
    return len(msgspec.json.encode(value, enc_hook=str))


def report(tally: Tally) -> str:
    """Return the figures as lines, the faults last."""
    lines = [
        f"{what}: {count} calls, {tally.taken[what]} taken, longest {tally.worst_s.get(what, 0.0):.3f} s"
        for what, count in sorted(tally.calls.items())
    ]
    lines.append(f"faults: {len(tally.faults)}")
    lines += [f"--- {told}\n{given}" for told, given in tally.faults.items()]
    return "\n".join(lines)


async def _on_roles(seeds: list[str], *, seed: int, seconds: float, dsn: str, folder: str) -> Tally:
    config = IngestConfig(database_url=dsn, port=0, encryption_key=generate_key(), store_dir=f"{folder}/store")
    async with (
        start_role(meta_app, MetaConfig(database_url=dsn)),
        start_role(ingest_app, config) as ingest,
        httpx.AsyncClient(base_url=ingest.url) as client,
    ):
        return await fuzz(seeds, seed=seed, seconds=seconds, client=client)


def main() -> int:
    """Fuzz on a Postgres, a meta and an ingest of its own; return 1 when anything was found."""
    parser = argparse.ArgumentParser(description="Fuzz what reads playbooks; exit 1 when anything was found.")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--playbooks", type=Path, action="append", help="A folder of more playbooks to begin with.")
    given = parser.parse_args()
    seeds = seeds_of((EXAMPLES, *(given.playbooks or ())))
    with tempfile.TemporaryDirectory() as folder, shared_postgres(Path(folder)) as server:
        dsn = clone(server)
        tally = asyncio.run(_on_roles(seeds, seed=given.seed, seconds=given.seconds, dsn=dsn, folder=folder))
        drop(server, dsn)
    sys.stdout.write(report(tally) + "\n")
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
