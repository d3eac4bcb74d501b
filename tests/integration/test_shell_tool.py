"""The shell and script tools in real processes: what comes back, what ends with them, how they fail."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noetl_common.core.outcome import Outcome
from noetl_common.core.scope import Scope
from noetl_common.core.values import Value
from services.worker.tools import Call, dispatch
from services.worker.tools.python_pool import PythonPool
from tests.running import wait_until


async def no_credential(alias: str) -> dict[str, Any]:
    raise AssertionError(alias)


@pytest.fixture
async def processes() -> AsyncIterator[PythonPool]:
    pool = PythonPool(1, memory_bytes_max=256 * 1024 * 1024)
    yield pool
    await pool.close()


def call_of(kind: str = "shell", *, timeout_s: float = 20.0, **config: Any) -> Call:
    return Call(
        kind=kind,
        label="run",
        step="run",
        execution_id=7,
        scope=Scope(load=lambda ref, key: None, workload=Value({}), ctx={}, results={}),
        credential=no_credential,
        processes=config.pop("processes", None),
        input=config.pop("input", {}),
        config=config,
        idempotency_key="key-1",
        timeout_s=timeout_s,
    )


async def shell(timeout_s: float = 20.0, **config: Any) -> Outcome:
    return await dispatch(call_of(timeout_s=timeout_s, **config))


def folders() -> set[str]:
    return {str(path) for path in Path(tempfile.gettempdir()).glob("noetl-python-*")}


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    ("config", "stdout"),
    [
        ({"command": "echo hello"}, "hello\n"),
        ({"command": "echo one\necho two # the end"}, "one\ntwo\n"),
        ({"cmds": ["X=1 # a comment", "cd /", "echo $X $PWD"]}, "1 /\n"),
        ({"cmds": ["echo", 5]}, None),
        ({"command": "printf '%s' \"$NOETL_IDEMPOTENCY_KEY\""}, "key-1"),
        ({"command": "echo $A $B", "env": {"A": "it's", "B": 2, "C": None}}, "it's 2\n"),
        ({"command": "pwd", "cwd": "/"}, "/\n"),
        ({"command": "echo $1-$2", "args": ["a b", 3]}, "a b-3\n"),
        ({"command": "echo ${BASH_VERSION:+yes}", "shell": "bash"}, "yes\n"),
        ({"command": "echo hello", "capture": False}, ""),
        ({"command": "cat"}, ""),
    ],
)
async def test_a_command_runs_and_says_what_it_printed(config: dict[str, Any], stdout: str | None) -> None:
    outcome = await shell(**config)
    if stdout is None:
        assert outcome.error is not None and outcome.data["exit_code"] == 127
    else:
        assert outcome.ok, outcome.error
        assert outcome.data == {"exit_code": 0, "stdout": stdout, "stderr": ""}


async def test_the_first_command_that_fails_ends_the_list() -> None:
    outcome = await shell(cmds=["echo one", "echo bad >&2; (exit 3)", "echo never"])
    assert outcome.error == {
        "kind": "exit",
        "code": "SHELL_EXIT",
        "message": "shell: expected exit code 0, found 3: bad",
        "retryable": False,
        "exit_code": 3,
    }
    assert outcome.data == {"exit_code": 3, "stdout": "one\n", "stderr": "bad\n"}


async def test_a_signal_is_a_code_over_128() -> None:
    outcome = await shell(command="kill -9 $$")
    assert outcome.data["exit_code"] == 137


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "expected `cmds` (a list) or `command` with a text, found neither"),
        ({"command": "ls", "cwd": "/nowhere"}, "cwd: expected a folder of the worker's machine, found '/nowhere'"),
        ({"command": "ls", "env": "A=1"}, "env: expected a mapping, found str"),
        ({"command": "ls", "env": {"A=B": 1}}, "env: expected names of variables, found 'A=B'"),
        ({"command": "ls", "args": "x"}, "args: expected a list"),
        ({"command": "ls", "capture": "no"}, "capture: expected true or false, found 'no'"),
        ({"command": "a\0b"}, "command: expected text without NUL characters"),
        ({"command": "x" * 130_000}, "command: expected at most 122880 bytes, found 130000"),
    ],
)
async def test_a_wrong_field_is_named(config: dict[str, Any], message: str) -> None:
    outcome = await shell(**config)
    assert outcome.error is not None and outcome.error["kind"] == "config"
    assert message in outcome.error["message"]


async def test_the_environment_holds_nothing_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_API_TOKEN", "s3cret")
    outcome = await shell(command="env")
    names = {line.partition("=")[0] for line in outcome.data["stdout"].splitlines()}
    assert "NOETL_API_TOKEN" not in names and {"PATH", "HOME", "NOETL_IDEMPOTENCY_KEY"} <= names
    assert "s3cret" not in outcome.data["stdout"]


@pytest.mark.parametrize("start", ["sleep 60 &", "setsid sleep 60 &", "setsid sh -c 'sleep 60 & wait' &"])
async def test_nothing_outlives_a_timeout(tmp_path: Path, start: str) -> None:
    outcome = await shell(1.0, command=f"{start}\necho $! > {tmp_path}/pid; echo begun; sleep 60")
    assert outcome.error is not None and outcome.error["code"] == "SHELL_TIMEOUT" and outcome.error["retryable"]
    assert outcome.data == {"exit_code": None, "stdout": "begun\n", "stderr": ""}
    assert not lives(int((tmp_path / "pid").read_text()))


async def test_nothing_outlives_its_shell(tmp_path: Path) -> None:
    outcome = await shell(command=f"sleep 60 & echo $! > {tmp_path}/pid")
    assert outcome.ok and not lives(int((tmp_path / "pid").read_text()))


async def test_nothing_outlives_a_cancellation(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    task = asyncio.create_task(
        shell(command=f"setsid sleep 60 & echo $! > {noted}.part; mv {noted}.part {noted}; wait")
    )
    await wait_until(noted.exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not lives(int(noted.read_text()))


async def test_what_it_prints_is_bounded() -> None:
    outcome = await shell(command="head -c 300000 /dev/zero | tr '\\0' x")
    assert outcome.ok and len(outcome.data["stdout"]) < 66_000
    assert "[truncated: 65536 of 300000 bytes are shown]" in outcome.data["stdout"]


async def test_its_memory_is_bounded(processes: PythonPool) -> None:
    outcome = await shell(command="ulimit -v; ulimit -c", processes=processes)
    assert outcome.data["stdout"] == f"{256 * 1024}\n0\n"


async def test_its_folder_is_gone_afterwards() -> None:
    outcome = await shell(command="pwd; echo x > file")
    assert outcome.ok and outcome.data["stdout"].strip() not in folders()


@pytest.mark.parametrize(
    ("config", "data"),
    [
        ({"script": {"source": {"type": "inline", "code": "result = {'n': n + 1}"}}, "input": {"n": 1}}, {"n": 2}),
        ({"code": "result = args['n']", "args": {"n": 3}}, 3),
        ({"code": "import sys\nresult = sys.argv[1:]", "args": ["a", 1]}, ["a", "1"]),
    ],
)
async def test_a_script_runs_in_the_workers_python_and_says_so(
    processes: PythonPool, config: dict[str, Any], data: Any
) -> None:
    outcome = await dispatch(call_of("script", processes=processes, **config))
    assert outcome.ok, outcome.error
    assert outcome.data == data and outcome.meta["runner"] == "local python"


async def test_a_script_comes_from_a_file(processes: PythonPool, tmp_path: Path) -> None:
    (tmp_path / "double.py").write_text("def main(n):\n    return n * 2\n", encoding="utf-8")
    source = {"uri": str(tmp_path / "double.py"), "source": {"type": "file"}}
    outcome = await dispatch(call_of("script", processes=processes, script=source, input={"n": 4}))
    assert outcome.data == 8


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"script": {"uri": "s3://b/k", "source": {"type": "ftp"}}}, "http, s3 or gcs, found 'ftp'"),
        ({"script": {"uri": "/nowhere.py", "source": {"type": "file"}}}, "script /nowhere.py: cannot be read"),
        ({"code": "1", "args": "x"}, "args: expected a list or a mapping, found str"),
    ],
)
async def test_a_wrong_script_is_named(processes: PythonPool, config: dict[str, Any], message: str) -> None:
    outcome = await dispatch(call_of("script", processes=processes, **config))
    assert outcome.error is not None and message in outcome.error["message"]
