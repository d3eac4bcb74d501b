"""The worker's loops: one file each."""
