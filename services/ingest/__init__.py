"""Ingest: the server. It takes inputs in, routes the shards it owns, and serves the public API.

Owns: event, shard_head, shard_cursor.seq, execution (up to start_time), execution_state, command, command_context,
timer, result_ref, catalog, credential, runtime (the workers' rows)
Reads: execution (from status on), projection_checkpoint, cluster
Loops: renew_leases, route_shards; append batches flush as they fill
Starts: python -m services.ingest
"""
