"""Write the pages that are made from the code: settings, limits, the schema of the language (`make env-example`)."""

import importlib
from pathlib import Path

import msgspec

from noetl_cli import language_schema, limits_page
from noetl_common.config import known_names, render_env_example

ROLES = ("ingest", "meta", "compute", "compactor", "worker")

COMPOSE = """
# For `docker compose` alone: the passwords of the servers it starts, and the token of the people who call the API
# (NOETL_API_TOKEN is the workers'). 16 characters at least.
POSTGRES_PASSWORD=
MINIO_ROOT_PASSWORD=
ADMIN_TOKEN=
"""

# What the command, the tests and the benchmarks read themselves.
COMMAND_NAMES = {"NOETL_HOME", "NOETL_SERVER_URL", "NOETL_API_TOKEN", "NOETL_CONFORMANCE_DIR"}

INTRODUCTION = """# Settings

Made by `make env-example` from the config Struct of each role (`services/<role>/config.py`); do not edit.

Every setting is an environment variable. An empty one counts as not set. A secret may be given as a file instead:
`<NAME>_FILE` holds its path; giving both is an error. A value of the wrong type ends the process with exit code 3 and a
message that names the variable, what was expected and what was found.

The `noetl` command itself reads `NOETL_HOME` (the state directory, `.noetl` when empty), `NOETL_SERVER_URL` and
`NOETL_API_TOKEN` (the API it talks to), `NOETL_PORT` (of the API it starts), and `DATABASE_URL` and `NATS_URL` (used
instead of embedded servers); it passes the rest to the roles that it starts.
"""


class Entry(msgspec.Struct, frozen=True):
    """One variable as a reader meets it."""

    name: str
    meaning: str
    default: str


def config_of(role: str) -> type[msgspec.Struct]:
    """Return the config Struct of a role."""
    kind: type[msgspec.Struct] = importlib.import_module(f"services.{role}.config").Config
    return kind


def everything_config() -> type[msgspec.Struct]:
    """Return the config Struct of the process that runs every role."""
    kind: type[msgspec.Struct] = importlib.import_module("services.config").Config
    return kind


def entries(kind: type[msgspec.Struct]) -> list[Entry]:
    """Return the variables of one config Struct, in its order."""
    blocks = render_env_example(kind).strip().split("\n\n")[1:]
    found = []
    for block in blocks:
        *comments, assignment = block.splitlines()
        name, _, default = assignment.partition("=")
        found.append(Entry(name, " ".join(line.removeprefix("# ") for line in comments), default))
    return found


def pages(root: Path) -> dict[str, str]:
    """Return {path from the repository's root: text} of every page that is made from the code."""
    kinds = {role: config_of(role) for role in ROLES} | {"all roles in one process": everything_config()}
    sections = [INTRODUCTION.strip()]
    for role, kind in kinds.items():
        rows = [f"| `{e.name}` | {e.meaning.replace('|', chr(92) + '|')} | {_code(e.default)} |" for e in entries(kind)]
        sections.append("\n".join([f"## {role}", "", "| variable | meaning | default |", "|---|---|---|", *rows]))
    return {
        ".env.example": render_env_example(*kinds.values()) + COMPOSE,
        "docs/CONFIG.md": "\n\n".join(sections) + "\n",
        limits_page.PATH: limits_page.page(root),
        language_schema.PATH: language_schema.page(),
        "libs/noetl_common/known_settings.txt": "\n".join(sorted(known_names(*kinds.values()) | COMMAND_NAMES)) + "\n",
    }


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def main() -> None:
    """Write every page below the working directory, which is the repository's root."""
    for path, text in pages(Path.cwd()).items():
        Path(path).write_text(text, encoding="utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
