"""The `noetl` command: one file a verb."""
