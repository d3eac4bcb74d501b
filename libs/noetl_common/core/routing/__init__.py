"""The parts of routing. draft.py: a decision being made; join.py, enter.py, leave.py, children.py make it."""
