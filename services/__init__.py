"""The roles; each is a process of its own, or all of them are one (`python -m services`).

Owns: nothing; each role's card says what that role owns.
Reads: the environment.
Loops: those of meta, ingest, compute and NOETL_WORKERS workers.
Starts: meta, compute and ingest together, then the workers against that ingest; stops in the reverse order.
"""
