"""compute: keeps the read models that people and the API look at.

Owns:   execution (status to updated_at), projection_state, projection_checkpoint (position and lag)
Reads:  event, shard_cursor, shard_head
Loops:  renew_leases, project_shards
Starts: python -m services.compute
"""
