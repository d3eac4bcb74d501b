"""Files that verbs read, and the registration of a playbook with its warnings shown."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from noetl_cli.output import say_problem
from noetl_common.errors import Invalid, PlaybookError

if TYPE_CHECKING:
    from noetl_cli.api import Api
    from noetl_common.core.playbook import Playbook


def read_document(file: Path) -> str:
    """Return the text of a file. Errors: Invalid when it is not a readable UTF-8 file."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as exc:
        raise Invalid(f"{file}: expected a file, found no such file") from exc
    except OSError as exc:
        raise Invalid(f"{file}: expected a readable file, found {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise Invalid(f"{file}: expected UTF-8 text, found {exc.reason} at byte {exc.start}") from exc


def read_mapping(file: Path) -> dict[str, Any]:
    """Return the mapping in a YAML or JSON file. Errors: Invalid when there is none."""
    import yaml  # here, because most verbs read no file

    try:
        found = yaml.safe_load(read_document(file))
    except yaml.MarkedYAMLError as exc:
        place = f":{exc.problem_mark.line + 1}:{exc.problem_mark.column + 1}" if exc.problem_mark else ""
        raise Invalid(f"{file}{place}: expected YAML or JSON, found other text: {exc.problem}") from exc
    except yaml.YAMLError as exc:
        raise Invalid(f"{file}: expected YAML or JSON, found other text: {exc}") from exc
    if not isinstance(found, dict):
        raise Invalid(f"{file}: expected a mapping, found {type(found).__name__}")
    return found


def register_document(api: "Api", text: str, *, source: Path) -> dict[str, Any]:
    """Register a playbook and show the server's warnings.

    Errors: PlaybookError, its problems naming the file, when the server refuses it.
    """
    try:
        answer = api.register(text)
    except PlaybookError as error:
        raise PlaybookError([named(problem, source) for problem in error.problems]) from error
    for warning in answer.get("warnings") or []:
        say_problem(warning if isinstance(warning, dict) else {"message": warning}, source=str(source))
    return answer


def check_document(text: str, *, source: Path) -> None:
    """Refuse a playbook here, before anything is started for it. Errors: PlaybookError naming the file."""
    checked(text, source=source)


def checked(text: str, *, source: Path) -> "Playbook":
    """Return the playbook in a text. Errors: PlaybookError naming the file."""
    from noetl_common.core.parse import parse  # here, because the template engine is slow to import

    try:
        return parse(text)[0]
    except PlaybookError as error:
        raise PlaybookError([named(problem, source) for problem in error.problems]) from error


def named(problem: Any, source: Path) -> dict[str, Any]:
    """Return a problem that says which file it stands in."""
    return {**msgspec.to_builtins(problem), "source": str(source)}
