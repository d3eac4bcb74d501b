"""The verbs of the `noetl` command, one file each."""
