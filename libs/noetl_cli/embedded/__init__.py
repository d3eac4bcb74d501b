"""Postgres and NATS for a laptop: real servers from PyPI wheels, under launchers of our own."""

from noetl_cli.embedded.nats import start_nats
from noetl_cli.embedded.postgres import discard_postgres, start_postgres
from noetl_cli.embedded.server import Server

__all__ = ["Server", "discard_postgres", "start_nats", "start_postgres"]
