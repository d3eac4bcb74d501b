"""Measured promises: one file each, a table for people and a JSON line for machines."""
