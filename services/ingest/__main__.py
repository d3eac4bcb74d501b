"""python -m services.ingest: run until SIGTERM."""

import sys

from noetl_common.process import run_role
from services.ingest.app import app
from services.ingest.config import Config

if __name__ == "__main__":
    sys.exit(run_role("ingest", Config, app))
