"""The loops of meta, one file each."""
