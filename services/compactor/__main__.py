"""python -m services.compactor: run until SIGTERM."""

import sys

from noetl_common.process import run_role
from services.compactor.app import app
from services.compactor.config import Config

if __name__ == "__main__":
    sys.exit(run_role("compactor", Config, app))
