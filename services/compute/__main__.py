"""python -m services.compute: run until SIGTERM."""

import sys

from noetl_common.process import run_role
from services.compute.app import app
from services.compute.config import Config

if __name__ == "__main__":
    sys.exit(run_role("compute", Config, app))
