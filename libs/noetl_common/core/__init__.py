"""The pure heart: no IO, no clock, no randomness, no logging.

Read in this order: shard.py (ids), events.py (what happened), state.py (what is),
playbook.py (what was asked for), fold.py (state after an event), route.py (what next).
"""
