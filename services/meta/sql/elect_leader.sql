-- name: look
-- Show that this process lives; take the leader's row when it is free, run out or a dead process's, keep it when it is
-- ours; and see who lives, who owns how much, what nobody holds, and what there is to do.
WITH alive AS MATERIALIZED (
    SELECT (classid::bigint << 32) | objid::bigint AS key
    FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
),
registered AS (
    INSERT INTO noetl.runtime (runtime_id, kind, name, instance, holds_lock)
    VALUES (%(runtime_id)s, 'meta', %(instance)s, %(instance)s, %(holds_lock)s)
    ON CONFLICT (kind, name) DO UPDATE
    SET heartbeat = clock_timestamp(), updated_at = clock_timestamp(), holds_lock = excluded.holds_lock
),
bid AS (
    UPDATE noetl.execution_shard
    SET epoch = epoch + (owner_instance IS DISTINCT FROM %(instance)s)::int,
        assigned_at = CASE WHEN owner_instance = %(instance)s THEN assigned_at ELSE clock_timestamp() END,
        owner_instance = %(instance)s,
        leased_until = clock_timestamp() + make_interval(secs => %(lease_s)s),
        updated_at = clock_timestamp()
    WHERE role = 'meta' AND shard_id = 0
        AND (owner_instance IS NULL OR owner_instance = %(instance)s OR leased_until < clock_timestamp()
            OR owner_instance = ANY (%(dead)s::text[]))
    RETURNING epoch
),
process AS MATERIALIZED (
    SELECT r.kind AS role, r.instance, r.status, r.holds_lock AND a.key IS NULL AS is_missing
    FROM noetl.runtime r LEFT JOIN alive a ON a.key = r.runtime_id
    WHERE r.kind = ANY (%(roles)s) AND r.instance <> %(instance)s
        AND r.heartbeat > clock_timestamp() - make_interval(secs => %(silent_s)s)
),
shard AS MATERIALIZED (
    SELECT role, shard_id, epoch, owner_instance AS owner,
        CASE WHEN leased_until > clock_timestamp() THEN owner_instance END AS holder,
        extract(epoch FROM clock_timestamp() - coalesce(leased_until, updated_at))::float8 AS unheld_s
    FROM noetl.execution_shard WHERE role = ANY (%(roles)s) AND role <> 'meta'
)
SELECT (SELECT epoch FROM bid) AS epoch,
    (SELECT coalesce(json_agg(process), '[]') FROM process) AS processes,
    (SELECT coalesce(json_agg(held), '[]') FROM (
        SELECT role, holder, count(*) AS shards FROM shard GROUP BY role, holder) held) AS holdings,
    (SELECT coalesce(json_agg(shard ORDER BY role, shard_id), '[]') FROM shard
        WHERE holder IS NULL OR holder IN (SELECT instance FROM process WHERE is_missing)) AS free,
    (SELECT coalesce(json_agg(r.instance), '[]') FROM noetl.runtime r
        WHERE r.kind = ANY (%(roles)s) AND r.heartbeat BETWEEN clock_timestamp() - interval '1 minute'
            AND clock_timestamp() - make_interval(secs => %(lease_s)s)) AS silent,
    extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8 AS postgres_age_s,
    EXISTS (SELECT FROM noetl.command WHERE status = 'claimed') AS has_claims,
    (SELECT sum(h.seq + c.seq + (p.last_projected_event_id & ((1::bigint << 55) - 1)))::text
        FROM noetl.shard_head h JOIN noetl.shard_cursor c USING (shard_id)
        JOIN noetl.projection_checkpoint p USING (shard_id)) AS progress

-- name: cut_off
-- End the sessions of processes whose leases have run out. One that was frozen in the middle of a pipeline is not idle in
-- its transaction by what Postgres knows, and would hold its locks for as long as it is frozen.
SELECT count(pg_terminate_backend(a.pid)) AS ended
FROM pg_stat_activity a JOIN noetl.runtime r ON split_part(a.application_name, ' ', 2) = to_hex(r.runtime_id)
WHERE a.datname = current_database() AND r.instance = ANY (%(instances)s)

-- name: resign
-- Give the leader's row back and leave the list of the living.
WITH resigned AS (
    UPDATE noetl.execution_shard SET owner_instance = NULL, leased_until = NULL, updated_at = clock_timestamp()
    WHERE role = 'meta' AND shard_id = 0 AND owner_instance = %(instance)s
)
DELETE FROM noetl.runtime WHERE kind = 'meta' AND name = %(instance)s
