"""The result_fetch tool: another name of `artifact` with `ref` instead of `result_ref`."""

from services.worker.tools.artifact import run

__all__ = ["run"]
