"""meta: one leader that decides who owns what and sees to what nobody else does.

Owns:   cluster, execution_shard (assignment), checkpoint, dead_letter, partitions, command (expired leases), migrations
Reads:  command (queue lengths), runtime, shard_head, shard_cursor, projection_checkpoint
Loops:  elect_leader (then assign_shards), write_checkpoints, reap_commands, create_partitions, drop_expired,
        measure_queues
Starts: python -m services.meta
"""
