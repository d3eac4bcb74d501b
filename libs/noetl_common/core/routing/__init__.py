"""The parts of routing: draft.py (a decision being made), join.py (which steps are ready), enter.py, leave.py, children.py."""
