"""The house keeps its own rules: sizes, docstrings, the five names, documents that name only what exists."""

import ast
import importlib
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500
ARGUMENTS_POSITIONAL_MAX = 3
ARGUMENTS_POSITIONAL_PRIVATE_MAX = 4
# Signatures that a library imposes: Jinja calls its filters and operators by position, httpcore its backends.
IMPOSED = {"replace", "indent", "call_binop", "connect_tcp"}
CODE = ("libs", "services", "benchmarks", "examples")
SERVICES = ("ingest", "meta", "compute", "compactor", "worker")
CARD = ("Owns", "Reads", "Loops", "Starts")
WITHOUT_DATABASE = {"worker"}
# Names that say nothing about what is inside.
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "manager", "managers", "base", "data", "info", "common", "misc"}
# How and where this was written is nobody's business; what it is called for stands beside it.
BANNED = {
    "a machine's path": r"(?<![\w.])/(?:work|root|farm)/",
    "a package index setting": r"index[-]url|extra[-]index",
    "an author that is not a person": r"\b(?:[Aa]ssistant|[Cc]hatbot|language model|LLM)s?\b",
    "an unfinished mark": r"\b(?:TODO|FIXME|XXX|NotImplementedError)\b",
    "a ticket of another place": r"\b[Ii]ssue \d+\b",
}
SQL_STATEMENT = re.compile(r"^\s*(?:SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|MERGE INTO)\s", re.IGNORECASE)
# SQL that cannot stand in a file: db.py bootstraps the table of migrations; identifiers of partitions are computed.
SQL_IN_CODE = {"libs/noetl_common/db.py", "libs/noetl_common/partitions.py"}


@cache
def tracked() -> tuple[str, ...]:
    """Return the paths of all files that belong to the project."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode == 0:
        return tuple(sorted(name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()))
    skipped = {".venv", ".git", ".noetl", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}
    files = (p.relative_to(ROOT) for p in ROOT.rglob("*") if p.is_file())
    return tuple(sorted(str(p) for p in files if not skipped & set(p.parts)))


def python_files(*folders: str) -> list[str]:
    return [name for name in tracked() if name.endswith(".py") and name.split("/")[0] in folders]


def tree_of(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(encoding="utf-8"), filename=name)


def functions(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


@pytest.mark.parametrize("name", python_files(*CODE, "tests"))
def test_a_file_fits_on_a_few_screens_and_says_what_it_is_for(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert text.count("\n") <= FILE_LINES_MAX
    if text.strip():
        assert ast.get_docstring(ast.parse(text)), f"{name}: a module says in a sentence what it is for"


@pytest.mark.parametrize("name", python_files(*CODE, "tests"))
def test_a_function_fits_on_one_screen(name: str) -> None:
    for node in functions(tree_of(name)):
        lines = (node.end_lineno or 0) - node.lineno + 1
        assert lines <= FUNCTION_LINES_MAX, f"{name}:{node.lineno} {node.name} has {lines} lines"


@pytest.mark.parametrize("name", python_files("libs", "services"))
def test_a_function_takes_few_positional_arguments(name: str) -> None:
    for node in functions(tree_of(name)):
        given = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args) if arg.arg not in ("self", "cls")]
        is_private = node.name.startswith("_") and not node.name.startswith("__")
        most = ARGUMENTS_POSITIONAL_PRIVATE_MAX if is_private else ARGUMENTS_POSITIONAL_MAX
        # The options of a command are written as its parameters.
        is_command = any(
            "command" in ast.unparse(mark) or "callback" in ast.unparse(mark) for mark in node.decorator_list
        )
        if not is_command and node.name not in IMPOSED:
            assert len(given) <= most, f"{name}:{node.lineno} {node.name}({', '.join(given)})"


def test_no_module_has_an_empty_name() -> None:
    found = [name for name in python_files(*CODE) if set(Path(name).with_suffix("").parts) & EMPTY_NAMES]
    assert not found


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_the_five_names(service: str) -> None:
    wanted = {"__init__.py", "__main__.py", "config.py", "app.py"}
    if service not in WITHOUT_DATABASE:
        wanted.add("store.py")
    found = {path.name for path in (ROOT / "services" / service).glob("*.py")}
    assert wanted <= found, f"services/{service} lacks {sorted(wanted - found)}"


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_a_card_of_four_lines(service: str) -> None:
    card = ast.get_docstring(tree_of(f"services/{service}/__init__.py")) or ""
    for word in CARD:
        assert re.search(rf"^\W*{word}\b", card, re.MULTILINE), f"services/{service}/__init__.py has no line {word!r}"


@pytest.mark.parametrize("service", SERVICES)
def test_a_main_decides_nothing(service: str) -> None:
    text = (ROOT / "services" / service / "__main__.py").read_text(encoding="utf-8")
    assert text.count("\n") <= 30


@pytest.mark.parametrize("service", SERVICES)
def test_a_loop_has_its_queries_under_its_own_name(service: str) -> None:
    loops = {path.stem for path in (ROOT / "services" / service / "loops").glob("*.py")} - {"__init__"}
    for loop in loops:
        assert re.fullmatch(r"[a-z]+(?:_[a-z]+)+", loop), f"services/{service}/loops/{loop}.py: expected verb_noun"


@pytest.mark.parametrize("name", [n for n in tracked() if n.endswith(".md")])
def test_a_document_names_only_functions_that_exist(name: str) -> None:
    stops = re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / name).read_text(encoding="utf-8"))
    assert len(stops) >= 10 or name != "docs/WALK.md"
    for file, symbol in stops:
        assert (ROOT / file).is_file(), f"{name}: no file {file}"
        names = {getattr(node, "name", "") for node in ast.walk(tree_of(file))}
        assert symbol in names, f"{name}: {file} has no {symbol}"


def test_the_documents_link_only_to_what_exists() -> None:
    for name in (n for n in tracked() if n.endswith(".md")):
        text = (ROOT / name).read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", text):
            assert (ROOT / name).parent.joinpath(target).exists(), f"{name}: no {target}"


def test_the_code_names_only_decision_records_that_exist() -> None:
    for name in python_files(*CODE, "tests"):
        for record in re.findall(r"docs/adr/[\w-]+\.md", (ROOT / name).read_text(encoding="utf-8")):
            assert (ROOT / record).is_file(), f"{name}: no {record}"


def test_every_make_target_the_documents_name_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    explained = set(re.findall(r"^([a-z][a-z-]*):.*## ", makefile, re.MULTILINE))
    assert targets == explained, f"without a ## sentence: {sorted(targets - explained)}"
    for name in (n for n in tracked() if n.endswith(".md")):
        text = (ROOT / name).read_text(encoding="utf-8")
        named = set(re.findall(r"`make ([a-z][a-z-]*)", text)) | set(
            re.findall(r"^make ([a-z][a-z-]*)", text, re.MULTILINE)
        )
        assert named <= targets, f"{name} names {sorted(named - targets)}"


def test_the_first_screen_of_the_readme_is_the_two_commands() -> None:
    first_screen = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:25])
    assert "make demo" in first_screen and "make test" in first_screen


def test_the_generated_pages_are_what_the_settings_say() -> None:
    reference = importlib.import_module("noetl_cli.reference")
    for path, text in reference.pages(ROOT).items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, f"{path} is old: run `make env-example`"


@pytest.mark.parametrize("what", BANNED)
def test_nothing_speaks_of(what: str) -> None:
    pattern = re.compile(BANNED[what])
    here = Path(__file__).relative_to(ROOT).as_posix()
    for name in tracked():
        if name in (here, "requirements.lock", "LICENSE"):
            continue
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            assert not pattern.search(line), f"{name}:{number} holds {what}: {line.strip()[:120]}"


def test_the_lock_has_pins_and_hashes_and_no_urls() -> None:
    assert "uv.lock" not in tracked()
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in lock and "index" not in lock.lower().replace("indexed", "")
    pins = re.split(r"\n(?=\S)", lock.strip())
    assert len(pins) > 40
    for pin in pins:
        assert re.match(r"[\w.-]+(?:\[[\w,-]+\])?==\S+", pin), pin.splitlines()[0]
        assert "--hash=sha256:" in pin, pin.splitlines()[0]


def test_the_lock_names_every_dependency() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    wanted = [*project["project"]["dependencies"], *(d for extra in extras for d in extra)]
    wanted += project["dependency-groups"]["dev"]
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = {name.lower().replace("_", "-") for name in re.findall(r"^([\w.-]+)(?:\[|==)", lock, re.MULTILINE)}
    for requirement in wanted:
        name = re.match(r"[\w.-]+", requirement)
        assert name is not None
        if name[0] != "noetl":
            assert name[0].lower().replace("_", "-") in locked, f"{requirement} is not in the lock: run `make lock`"


@pytest.mark.parametrize("name", python_files("libs", "services"))
def test_sql_stands_in_sql_files(name: str) -> None:
    if name in SQL_IN_CODE or "/tools/" in name:
        return
    for node in ast.walk(tree_of(name)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("execute", "executemany")
        ):
            for arg in node.args[:1]:
                text = arg.value if isinstance(arg, ast.Constant) and isinstance(arg.value, str) else ""
                if isinstance(arg, ast.JoinedStr):
                    text = "".join(str(part.value) for part in arg.values if isinstance(part, ast.Constant))
                assert not SQL_STATEMENT.match(text), f"{name}:{node.lineno} has SQL in the code: {text[:60]!r}"


@pytest.mark.parametrize("name", [n for n in tracked() if n.endswith(".sql") and "/sql/" in n])
def test_a_query_has_a_name_and_a_sentence(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    blocks = re.split(r"^-- name: ", text, flags=re.MULTILINE)[1:]
    assert blocks, f"{name} has no query"
    for block in blocks:
        first, second = block.splitlines()[:2]
        assert re.fullmatch(r"\w+", first), f"{name}: {first!r}"
        assert second.startswith("-- "), f"{name}: {first} has no sentence"
