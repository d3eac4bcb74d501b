-- name: found_cluster
-- Fix the cluster's constants, unless someone did before.
INSERT INTO noetl.cluster (cluster_id, shard_count, partition_width_hours)
VALUES (gen_random_uuid()::text, %(shard_count)s, %(partition_width_hours)s)
ON CONFLICT (only_row) DO NOTHING

-- name: read_cluster
-- Read what was fixed when the database was initialised.
SELECT cluster_id, shard_count, partition_width_hours FROM noetl.cluster

-- name: seed_heads
-- Give each shard its head.
INSERT INTO noetl.shard_head (shard_id) SELECT generate_series(0, %(shard_count)s - 1) ON CONFLICT DO NOTHING

-- name: seed_cursors
-- Give each shard its routing cursor.
INSERT INTO noetl.shard_cursor (shard_id) SELECT generate_series(0, %(shard_count)s - 1) ON CONFLICT DO NOTHING

-- name: seed_projection_checkpoints
-- Give each shard its projection cursor; nothing of a shard can be numbered below its first id.
INSERT INTO noetl.projection_checkpoint (shard_id) SELECT generate_series(0, %(shard_count)s - 1)
ON CONFLICT DO NOTHING

-- name: seed_compaction_cursors
-- Give each shard the fence of its compactor.
INSERT INTO noetl.compaction_cursor (shard_id) SELECT generate_series(0, %(shard_count)s - 1) ON CONFLICT DO NOTHING

-- name: seed_leases
-- Give each sharded role a lease row a shard, and meta the row its leader holds.
INSERT INTO noetl.execution_shard (role, shard_id)
SELECT role, shard FROM unnest(%(roles)s::text[]) AS role, generate_series(0, %(shard_count)s - 1) AS shard
UNION ALL SELECT 'meta', 0
ON CONFLICT DO NOTHING

-- name: lock_partitions
-- One process at a time makes partitions; until commit.
SELECT pg_advisory_xact_lock(%(lock)s)

-- name: attached_partitions
-- Name the partitions that the log's tables have.
SELECT parent.relname AS parent, child.relname AS name
FROM pg_inherits
JOIN pg_class parent ON parent.oid = pg_inherits.inhparent
JOIN pg_class child ON child.oid = pg_inherits.inhrelid
WHERE parent.relnamespace = 'noetl'::regnamespace AND parent.relname = ANY (%(parents)s)
    AND NOT pg_inherits.inhdetachpending
