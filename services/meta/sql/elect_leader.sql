-- name: lead
-- Show that this process lives; take the leader's row when it is free or run out, keep it when it is ours.
WITH registered AS (
    INSERT INTO noetl.runtime (runtime_id, kind, name, instance)
    VALUES (%(runtime_id)s, 'meta', %(instance)s, %(instance)s)
    ON CONFLICT (kind, name) DO UPDATE SET heartbeat = clock_timestamp(), updated_at = clock_timestamp()
)
UPDATE noetl.execution_shard
SET epoch = epoch + (owner_instance IS DISTINCT FROM %(instance)s)::int,
    owner_instance = %(instance)s,
    leased_until = clock_timestamp() + make_interval(secs => %(lease_s)s),
    updated_at = clock_timestamp()
WHERE role = 'meta' AND shard_id = 0
    AND (owner_instance IS NULL OR owner_instance = %(instance)s OR leased_until < clock_timestamp())
RETURNING epoch

-- name: resign
-- Give the leader's row back and leave the list of the living.
WITH resigned AS (
    UPDATE noetl.execution_shard SET owner_instance = NULL, leased_until = NULL, updated_at = clock_timestamp()
    WHERE role = 'meta' AND shard_id = 0 AND owner_instance = %(instance)s
)
DELETE FROM noetl.runtime WHERE kind = 'meta' AND name = %(instance)s
