"""Write `.env` for docker compose (`make compose-env`): .env.example with passwords, tokens and a key drawn anew.

Needs nothing but Python. An `.env` that exists is kept: its passwords are those of the volumes.
"""

import base64
import os
import re
import secrets
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PASSWORDS = ("POSTGRES_PASSWORD", "MINIO_ROOT_PASSWORD", "NOETL_API_TOKEN", "ADMIN_TOKEN")
KEY = "NOETL_ENCRYPTION_KEY"


def filled(example: str) -> str:
    """Return the example with a value for each secret that docker-compose.yml asks for."""
    # Hexadecimal, because one of them stands in a URL.
    values = {name: secrets.token_hex(24) for name in PASSWORDS}
    values[KEY] = base64.b64encode(secrets.token_bytes(32)).decode()
    for name, value in values.items():
        example, found = re.subn(rf"^{name}=$", f"{name}={value}", example, flags=re.MULTILINE)
        assert found == 1, f".env.example: expected one line {name}=, found {found}"
    return example


def main() -> int:
    """Write the file, readable by its owner alone; return the exit code."""
    path = ROOT / ".env"
    text = filled((ROOT / ".env.example").read_text(encoding="utf-8"))
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        print(f"{path} exists already and is kept", file=sys.stderr)
        return 0
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
