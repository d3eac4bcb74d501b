-- name: read_positions
-- Read how far each shard is routed and projected, and the age of its oldest event not projected yet.
SELECT c.shard_id, c.seq AS routed_seq, p.last_projected_event_id AS projected, p.lease_epoch,
    CASE WHEN p.last_projected_event_id < ((c.shard_id::bigint << 55) | (h.seq << 15) | 32767)
        THEN (SELECT extract(epoch FROM clock_timestamp() - e.created_at)::float8 FROM noetl.event e
            WHERE e.shard_id = c.shard_id AND e.event_id > p.last_projected_event_id ORDER BY e.event_id LIMIT 1)
    END AS lag_s
FROM noetl.shard_cursor c
JOIN noetl.shard_head h USING (shard_id)
JOIN noetl.projection_checkpoint p USING (shard_id)
WHERE c.shard_id = ANY (%(shards)s)

-- name: read_events
-- Read a shard's next events in order, up to where it is routed.
SELECT execution_id, event_id, event_type, step, command_id, attempt, loop_epoch, iter_index, status, result, meta,
    dedup_key, catalog_id, parent_execution_id, worker_id, event_time
FROM noetl.event
WHERE shard_id = %(shard_id)s AND event_id > %(after)s AND event_id <= %(until)s
ORDER BY event_id LIMIT %(limit)s

-- name: read_runs
-- Read the state and the read model of executions, as of their last projected event.
SELECT x.execution_id, x.status, x.current_step, x.progress, x.result, x.error, x.end_time, x.last_event_id,
    s.state::text AS state
FROM noetl.execution x LEFT JOIN noetl.projection_state s USING (execution_id)
WHERE x.execution_id = ANY (%(executions)s)

-- name: advance_projection
-- Move a shard's position: the fence of everything else in the transaction. Behind by the age of what follows.
UPDATE noetl.projection_checkpoint
SET last_projected_event_id = %(new)s, last_projected_at = clock_timestamp(), lag_ms = least(2147483647, coalesce((
    SELECT 1000 * extract(epoch FROM clock_timestamp() - e.created_at) FROM noetl.event e
    WHERE e.shard_id = %(shard_id)s AND e.event_id > %(new)s ORDER BY e.event_id LIMIT 1), 0))::int
WHERE shard_id = %(shard_id)s AND lease_epoch = %(epoch)s AND last_projected_event_id = %(old)s

-- name: save_states
-- Save the fold of every touched execution.
INSERT INTO noetl.projection_state (execution_id, last_event_id, state)
SELECT g.execution_id, g.last_event_id, g.state
FROM json_to_recordset(%(runs)s::json) AS g (execution_id bigint, last_event_id bigint, state jsonb)
ON CONFLICT (execution_id) DO UPDATE SET last_event_id = excluded.last_event_id, state = excluded.state
WHERE excluded.last_event_id > projection_state.last_event_id

-- name: save_progress
-- Save the read model of every touched execution; never an older one over a newer one.
UPDATE noetl.execution x
SET status = g.status, current_step = g.current_step, progress = g.progress, result = g.result, error = g.error,
    end_time = g.end_time, last_event_id = g.last_event_id, updated_at = clock_timestamp()
FROM json_to_recordset(%(runs)s::json) AS g (execution_id bigint, last_event_id bigint, status text,
    current_step text, progress jsonb, result jsonb, error jsonb, end_time timestamptz)
WHERE x.execution_id = g.execution_id AND g.last_event_id > x.last_event_id

-- name: ping
-- Ask whether the database answers.
SELECT 1
