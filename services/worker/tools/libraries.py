"""Libraries that only some tools need: imported at the first call, and named with their extra when absent."""

from importlib import import_module
from typing import Any

from noetl_common.errors import DependencyMissing


def library(module: str, *, extra: str) -> Any:
    """Return the module `module`, which the extra `extra` brings.

    Errors: DependencyMissing says what to install.
    """
    try:
        return import_module(module)
    except ImportError:
        raise DependencyMissing(f"the library {module} is absent: pip install noetl[{extra}]") from None
