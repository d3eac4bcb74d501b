"""python -m services.worker: run until SIGTERM."""

import sys

from noetl_common.process import run_role
from services.worker.app import app
from services.worker.config import Config

if __name__ == "__main__":
    sys.exit(run_role("worker", Config, app))
