"""python -m services.meta: run until SIGTERM."""

import sys

from noetl_common.process import run_role
from services.meta.app import app
from services.meta.config import Config

if __name__ == "__main__":
    sys.exit(run_role("meta", Config, app))
