"""The parts of routing, each built on those before it.

draft.py: a decision being made; join.py: which steps are ready; items.py, bodies.py, writes.py: what bodies begin with
and write; children.py, segments.py: begin and end bodies; leave.py, cursor.py, loops.py, enter.py, stream.py: steps.
"""
