"""The loops of compute, one file each."""
