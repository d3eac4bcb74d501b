"""The worker: claims commands, runs their tools, makes each result durable, reports.

Owns: nothing in Postgres; its leases are rows that ingest and meta keep.
Reads: commands, contexts and payloads, over ingest's HTTP API only.
Loops: run_commands, report_results; beside them the heartbeat, a thread of its own.
Starts: python -m services.worker
"""
