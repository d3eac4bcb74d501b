-- name: renew_leases
-- Show that this process lives, renew what it owns, and tell it what it owns and who else is alive.
WITH registered AS (
    INSERT INTO noetl.runtime (runtime_id, kind, name, instance, uri)
    VALUES (%(runtime_id)s, %(role)s, %(instance)s, %(instance)s, %(uri)s)
    ON CONFLICT (kind, name) DO UPDATE SET heartbeat = clock_timestamp(), updated_at = clock_timestamp()
),
renewed AS (
    UPDATE noetl.execution_shard
    SET leased_until = clock_timestamp() + make_interval(secs => %(lease_s)s), updated_at = clock_timestamp()
    WHERE role = %(role)s AND owner_instance = %(instance)s
    RETURNING shard_id, epoch
),
peer AS (
    SELECT r.instance, count(s.shard_id) AS owned
    FROM noetl.runtime r
    LEFT JOIN noetl.execution_shard s ON s.role = %(role)s AND s.owner_instance = r.instance
    WHERE r.kind = %(role)s AND r.instance <> %(instance)s
        AND r.heartbeat > clock_timestamp() - make_interval(secs => %(lease_s)s)
    GROUP BY r.instance
)
SELECT
    (SELECT coalesce(json_agg(json_build_array(shard_id, epoch)), '[]') FROM renewed) AS shards,
    (SELECT count(*) FROM noetl.execution_shard WHERE role = %(role)s) AS shard_count,
    (SELECT coalesce(json_object_agg(instance, owned), '{}') FROM peer) AS peers,
    EXISTS (SELECT FROM noetl.execution_shard
        WHERE role = 'meta' AND shard_id = 0 AND leased_until > clock_timestamp()) AS has_leader

-- name: release_shards
-- Give shards back, if they are still this process's.
UPDATE noetl.execution_shard
SET owner_instance = NULL, leased_until = NULL, updated_at = clock_timestamp()
WHERE role = %(role)s AND owner_instance = %(instance)s AND shard_id = ANY (%(shards)s)

-- name: leave_role
-- Give everything back and take the process off the list of the living.
WITH released AS (
    UPDATE noetl.execution_shard
    SET owner_instance = NULL, leased_until = NULL, updated_at = clock_timestamp()
    WHERE role = %(role)s AND owner_instance = %(instance)s
)
DELETE FROM noetl.runtime WHERE kind = %(role)s AND name = %(instance)s
