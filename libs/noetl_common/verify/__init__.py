"""Verify: recompute all that is derived from the log and compare it with what is kept. Reads, changes nothing."""
