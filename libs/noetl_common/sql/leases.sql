-- name: take_session_lock
-- Show that this process lives, for as long as this session does.
SELECT pg_try_advisory_lock(%(key)s) AS taken

-- name: renew_leases
-- Show that this process lives, renew what it owns, and tell it what it owns and who else is alive: one whose session
-- lock is gone is not counted, though its lease has not run out.
WITH alive AS MATERIALIZED (
    SELECT (classid::bigint << 32) | objid::bigint AS key
    FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
),
registered AS (
    INSERT INTO noetl.runtime (runtime_id, kind, name, instance, uri, holds_lock)
    VALUES (%(runtime_id)s, %(role)s, %(instance)s, %(instance)s, %(uri)s, %(holds_lock)s)
    ON CONFLICT (kind, name) DO UPDATE
    SET heartbeat = clock_timestamp(), updated_at = clock_timestamp(), holds_lock = excluded.holds_lock
    RETURNING status
),
renewed AS (
    UPDATE noetl.execution_shard
    SET leased_until = clock_timestamp() + make_interval(secs => %(lease_s)s), updated_at = clock_timestamp()
    WHERE role = %(role)s AND owner_instance = %(instance)s
    RETURNING shard_id, epoch
),
peer AS (
    SELECT r.instance, r.status, count(s.shard_id) AS owned
    FROM noetl.runtime r
    LEFT JOIN noetl.execution_shard s ON s.role = %(role)s AND s.owner_instance = r.instance
    WHERE r.kind = %(role)s AND r.instance <> %(instance)s
        AND r.heartbeat > clock_timestamp() - make_interval(secs => %(lease_s)s)
        AND (NOT r.holds_lock OR r.runtime_id IN (SELECT key FROM alive))
    GROUP BY r.instance, r.status
)
SELECT
    (SELECT status FROM registered) AS status,
    (SELECT coalesce(json_agg(json_build_array(shard_id, epoch)), '[]') FROM renewed) AS shards,
    (SELECT count(*) FROM noetl.execution_shard WHERE role = %(role)s) AS shard_count,
    (SELECT coalesce(json_object_agg(instance, json_build_array(owned, status)), '{}') FROM peer) AS peers,
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
