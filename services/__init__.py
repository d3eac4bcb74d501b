"""The roles; each is a process of its own, or all of them are one (`python -m services`).

Owns: nothing; each role's card says what that role owns.
Reads: the environment.
Loops: those of meta, ingest, compute, NOETL_WORKERS workers, and the compactor with NOETL_COMPACTOR_ENABLED.
Starts: meta, compute and ingest together, then the workers against that ingest; stops in the reverse order.
"""
