"""Settings of all roles in one process."""

from typing import Annotated

import msgspec

from noetl_common.config import env


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What the process that runs every role reads beside each role's own settings."""

    workers: Annotated[int, env("NOETL_WORKERS", doc="How many workers the process of all roles runs.")] = 1
