-- name: read_positions
-- Read how far each shard is routed and projected, and the age of its oldest event not projected yet.
SELECT c.shard_id, c.seq AS routed_seq, p.last_projected_event_id AS projected,
    CASE WHEN p.last_projected_event_id < ((c.shard_id::bigint << 55) | (h.seq << 15) | 32767)
        THEN (SELECT extract(epoch FROM clock_timestamp() - e.created_at)::float8 FROM noetl.event e
            WHERE e.shard_id = c.shard_id AND e.event_id > p.last_projected_event_id ORDER BY e.event_id LIMIT 1)
    END AS lag_s
FROM noetl.shard_cursor c
JOIN noetl.shard_head h USING (shard_id)
JOIN noetl.projection_checkpoint p USING (shard_id)
WHERE c.shard_id = ANY (%(shards)s)

-- name: read_events
-- Read some shards' next events, each shard's in order, up to where it is routed; of each shard so many at most. Where
-- it is routed is looked at last: the planner then walks along the index, however many events follow.
SELECT e.*
FROM json_to_recordset(%(shards)s::json) AS g (shard_id smallint, after bigint, until bigint)
CROSS JOIN LATERAL (
    SELECT execution_id, event_id, event_type, step, command_id, attempt, loop_epoch, iter_index, status, result, meta,
        catalog_id, parent_execution_id, event_time
    FROM noetl.event
    WHERE shard_id = g.shard_id AND event_id > g.after
    ORDER BY event_id LIMIT %(limit)s
) AS e
WHERE e.event_id <= g.until
ORDER BY e.event_id

-- name: read_runs
-- Read the state and the read model of executions, as of their last projected event.
SELECT x.execution_id, x.status, x.current_step, x.progress, x.result, x.error, x.end_time, x.last_event_id,
    s.state::text AS state
FROM noetl.execution x LEFT JOIN noetl.projection_state s USING (execution_id)
WHERE x.execution_id = ANY (%(executions)s)

-- name: save_projection
-- Move shards from where they were read, each under its own fence, and save the runs of those that moved: a run's
-- shard stands in its event's id. Never an older fold or read model over a newer one. Behind by the age of what follows.
WITH moved AS (
    UPDATE noetl.projection_checkpoint p
    SET last_projected_event_id = g.new, last_projected_at = clock_timestamp(), lag_ms = least(2147483647, coalesce((
        SELECT 1000 * extract(epoch FROM clock_timestamp() - e.created_at) FROM noetl.event e
        WHERE e.shard_id = g.shard_id AND e.event_id > g.new ORDER BY e.event_id LIMIT 1), 0))::int
    FROM json_to_recordset(%(moves)s::json) AS g (shard_id smallint, epoch bigint, old bigint, new bigint)
    WHERE p.shard_id = g.shard_id AND p.lease_epoch = g.epoch AND p.last_projected_event_id = g.old
    RETURNING p.shard_id
), given AS (
    SELECT g.*
    FROM json_to_recordset(%(runs)s::json) AS g (execution_id bigint, last_event_id bigint, state jsonb, status text,
        current_step text, progress jsonb, result jsonb, error jsonb, end_time timestamptz)
    WHERE g.last_event_id >> 55 = ANY (ARRAY (SELECT shard_id FROM moved))
), folded AS (
    INSERT INTO noetl.projection_state (execution_id, last_event_id, state)
    SELECT execution_id, last_event_id, state FROM given
    ON CONFLICT (execution_id) DO UPDATE SET last_event_id = excluded.last_event_id, state = excluded.state
    WHERE excluded.last_event_id > projection_state.last_event_id
), shown AS (
    UPDATE noetl.execution x
    SET status = g.status, current_step = g.current_step, progress = g.progress, result = g.result, error = g.error,
        end_time = g.end_time, last_event_id = g.last_event_id, updated_at = clock_timestamp()
    FROM given g
    WHERE x.execution_id = g.execution_id AND g.last_event_id > x.last_event_id
)
SELECT shard_id FROM moved

-- name: ping
-- Ask whether the database answers.
SELECT 1
