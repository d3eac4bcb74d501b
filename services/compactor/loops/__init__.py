"""The loops of the compactor, one file each."""
