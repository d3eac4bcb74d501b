"""compactor: an end for old data.

Owns:   manifest, manifest_part, kept_result, compaction, compaction_cursor, orphan_payload, execution (compacted_at),
        detaching and dropping partitions, payloads that nothing names
Reads:  execution, event, command, command_context, result_ref, shard_cursor, shard_head, projection_checkpoint
Loops:  renew_leases, compact_executions, drop_partitions, collect_orphans
Starts: python -m services.compactor
"""
