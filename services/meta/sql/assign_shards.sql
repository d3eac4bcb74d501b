-- name: read_shards
-- Read every shard of the sharded roles: its epoch, its owner if the lease has not run out, and how long ago it did.
SELECT role, shard_id, epoch, CASE WHEN leased_until > clock_timestamp() THEN owner_instance END AS holder,
    extract(epoch FROM clock_timestamp() - coalesce(leased_until, updated_at))::float8 AS unheld_s
FROM noetl.execution_shard WHERE role = ANY (%(roles)s) ORDER BY role, shard_id

-- name: read_living
-- Read who may own shards: processes that showed a sign of life within a lease.
SELECT kind AS role, instance FROM noetl.runtime
WHERE kind = ANY (%(roles)s) AND status = 'ready'
    AND heartbeat > clock_timestamp() - make_interval(secs => %(lease_s)s)

-- name: limit_lock_wait
-- Wait for a frozen owner's transaction only briefly: another shard may be free.
SELECT set_config('lock_timeout', '200ms', true)

-- name: lock_fence_ingest
-- Wait for the old owner's routing transaction to end.
SELECT shard_id FROM noetl.shard_cursor WHERE shard_id = %(shard_id)s FOR UPDATE

-- name: lock_fence_compute
-- Wait for the old owner's projection transaction to end.
SELECT shard_id FROM noetl.projection_checkpoint WHERE shard_id = %(shard_id)s FOR UPDATE

-- name: lock_fence_compactor
-- Wait for the old owner's folding transaction to end.
SELECT shard_id FROM noetl.compaction_cursor WHERE shard_id = %(shard_id)s FOR UPDATE

-- name: assign_shard
-- Give a shard that nobody holds to an instance, one epoch on, if this process is still the leader.
UPDATE noetl.execution_shard
SET owner_instance = %(owner)s, epoch = epoch + 1, updated_at = clock_timestamp(),
    leased_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
WHERE role = %(role)s AND shard_id = %(shard_id)s AND epoch = %(epoch)s
    AND (owner_instance IS NULL OR leased_until <= clock_timestamp())
    AND EXISTS (SELECT FROM noetl.execution_shard l WHERE l.role = 'meta' AND l.shard_id = 0
        AND l.owner_instance = %(leader)s AND l.epoch = %(leader_epoch)s)
RETURNING epoch

-- name: fence_ingest
-- From here on only the new epoch may route.
UPDATE noetl.shard_cursor SET lease_epoch = %(epoch)s, updated_at = clock_timestamp() WHERE shard_id = %(shard_id)s

-- name: fence_compute
-- From here on only the new epoch may project.
UPDATE noetl.projection_checkpoint SET lease_epoch = %(epoch)s WHERE shard_id = %(shard_id)s

-- name: fence_compactor
-- From here on only the new epoch may compact.
UPDATE noetl.compaction_cursor SET lease_epoch = %(epoch)s WHERE shard_id = %(shard_id)s
