-- name: assign_ingest
-- Give a shard that nobody holds, or a dead process, to an instance, one epoch on, if this process still leads. It waits for
-- the old owner's routing transaction to end; from then on only the new epoch may route.
WITH fence AS (
    SELECT shard_id FROM noetl.shard_cursor WHERE shard_id = %(shard_id)s FOR UPDATE
),
given AS (
    UPDATE noetl.execution_shard s
    SET owner_instance = %(owner)s, epoch = s.epoch + 1, assigned_at = clock_timestamp(),
        updated_at = clock_timestamp(), leased_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
    FROM fence
    WHERE s.role = 'ingest' AND s.shard_id = fence.shard_id AND s.epoch = %(epoch)s
        AND (s.owner_instance IS NULL OR s.leased_until <= clock_timestamp()
            OR s.owner_instance = ANY (%(dead)s::text[]))
        AND EXISTS (SELECT FROM noetl.execution_shard l WHERE l.role = 'meta' AND l.shard_id = 0
            AND l.owner_instance = %(leader)s AND l.epoch = %(leader_epoch)s)
    RETURNING s.shard_id, s.epoch
)
UPDATE noetl.shard_cursor f SET lease_epoch = given.epoch, updated_at = clock_timestamp()
FROM given WHERE f.shard_id = given.shard_id
RETURNING f.lease_epoch

-- name: assign_compute
-- Give a shard that nobody holds, or a dead process, to an instance, one epoch on, if this process still leads. It waits for
-- the old owner's projection transaction to end; from then on only the new epoch may project.
WITH fence AS (
    SELECT shard_id FROM noetl.projection_checkpoint WHERE shard_id = %(shard_id)s FOR UPDATE
),
given AS (
    UPDATE noetl.execution_shard s
    SET owner_instance = %(owner)s, epoch = s.epoch + 1, assigned_at = clock_timestamp(),
        updated_at = clock_timestamp(), leased_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
    FROM fence
    WHERE s.role = 'compute' AND s.shard_id = fence.shard_id AND s.epoch = %(epoch)s
        AND (s.owner_instance IS NULL OR s.leased_until <= clock_timestamp()
            OR s.owner_instance = ANY (%(dead)s::text[]))
        AND EXISTS (SELECT FROM noetl.execution_shard l WHERE l.role = 'meta' AND l.shard_id = 0
            AND l.owner_instance = %(leader)s AND l.epoch = %(leader_epoch)s)
    RETURNING s.shard_id, s.epoch
)
UPDATE noetl.projection_checkpoint f SET lease_epoch = given.epoch
FROM given WHERE f.shard_id = given.shard_id
RETURNING f.lease_epoch

-- name: assign_compactor
-- Give a shard that nobody holds, or a dead process, to an instance, one epoch on, if this process still leads. It waits for
-- the old owner's folding transaction to end; from then on only the new epoch may compact.
WITH fence AS (
    SELECT shard_id FROM noetl.compaction_cursor WHERE shard_id = %(shard_id)s FOR UPDATE
),
given AS (
    UPDATE noetl.execution_shard s
    SET owner_instance = %(owner)s, epoch = s.epoch + 1, assigned_at = clock_timestamp(),
        updated_at = clock_timestamp(), leased_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
    FROM fence
    WHERE s.role = 'compactor' AND s.shard_id = fence.shard_id AND s.epoch = %(epoch)s
        AND (s.owner_instance IS NULL OR s.leased_until <= clock_timestamp()
            OR s.owner_instance = ANY (%(dead)s::text[]))
        AND EXISTS (SELECT FROM noetl.execution_shard l WHERE l.role = 'meta' AND l.shard_id = 0
            AND l.owner_instance = %(leader)s AND l.epoch = %(leader_epoch)s)
    RETURNING s.shard_id, s.epoch
)
UPDATE noetl.compaction_cursor f SET lease_epoch = given.epoch
FROM given WHERE f.shard_id = given.shard_id
RETURNING f.lease_epoch
