"""Deterministic simulation: the product's own code on a simulated clock, network and database, driven by a seed."""
