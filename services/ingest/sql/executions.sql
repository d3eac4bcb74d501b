-- name: list_executions
-- Runs, newest first.
SELECT x.execution_id, x.catalog_id, x.path, x.version, x.status, x.start_time, x.end_time, x.progress, x.result,
    x.error, x.parent_execution_id, x.current_step
FROM noetl.execution x
WHERE (%(path)s::text IS NULL OR x.path = %(path)s::text)
    AND (%(status)s::text IS NULL OR x.status = %(status)s::text)
    AND (%(catalog_id)s::bigint IS NULL OR x.catalog_id = %(catalog_id)s::bigint)
    AND (%(parent)s::bigint IS NULL OR x.parent_execution_id = %(parent)s::bigint)
    AND (%(before)s::bigint IS NULL OR x.execution_id < %(before)s::bigint)
ORDER BY x.execution_id DESC
LIMIT %(limit)s OFFSET %(offset)s

-- name: read_execution
-- One run as projected, how far its shard is projected, and the router's own word on its end.
SELECT x.execution_id, x.shard_id, x.catalog_id, x.path, x.version, x.status, x.start_time, x.end_time, x.progress,
    x.result, x.error, x.parent_execution_id, x.current_step, x.last_event_id,
    coalesce(p.last_projected_event_id, 0) AS as_of_event_id, coalesce(p.lag_ms, 0) AS lag_ms,
    clock_timestamp() AS now
FROM noetl.execution x
LEFT JOIN noetl.projection_checkpoint p ON p.shard_id = x.shard_id
WHERE x.execution_id = %(execution_id)s

-- name: read_standing
-- Whether a run exists and has ended, by the router's state or else the projection.
SELECT x.execution_id, x.shard_id, x.path,
    CASE WHEN x.status <> 'RUNNING' THEN x.status ELSE coalesce(s.state ->> 'status', x.status) END AS status,
    s.state ->> 'cancelling' AS cancelling
FROM noetl.execution x
LEFT JOIN noetl.execution_state s ON s.execution_id = x.execution_id
WHERE x.execution_id = %(execution_id)s

-- name: list_live_family
-- A run and those of its descendants that have not ended.
WITH RECURSIVE family AS (
    SELECT execution_id, status FROM noetl.execution WHERE execution_id = %(execution_id)s
    UNION
    SELECT x.execution_id, x.status FROM noetl.execution x JOIN family f ON x.parent_execution_id = f.execution_id
)
SELECT execution_id FROM family WHERE status = 'RUNNING' ORDER BY execution_id LIMIT %(limit)s

-- name: read_start_input
-- What a run was started with.
SELECT result FROM noetl.event WHERE execution_id = %(execution_id)s AND dedup_key = 'start'

-- name: count_events
-- How many events of a run stand in its shard's routed prefix.
SELECT count(*) AS total FROM noetl.event e JOIN noetl.shard_cursor c ON c.shard_id = e.shard_id
WHERE e.execution_id = %(execution_id)s AND e.event_id > %(since)s
    AND e.event_id <= ((c.shard_id::bigint << 55) | (c.seq << 15) | 32767)
    AND (%(event_type)s::text IS NULL OR e.event_type = %(event_type)s::text)

-- name: read_events
-- A page of a run's events, oldest first, within its shard's routed prefix: what is shown never changes.
SELECT e.execution_id, e.event_id, e.event_type, e.step, e.command_id, e.attempt, e.loop_epoch, e.iter_index, e.status,
    e.result, e.meta, e.catalog_id, e.parent_execution_id, e.worker_id, e.event_time, e.created_at
FROM noetl.event e JOIN noetl.shard_cursor c ON c.shard_id = e.shard_id
WHERE e.execution_id = %(execution_id)s AND e.event_id > %(since)s
    AND e.event_id <= ((c.shard_id::bigint << 55) | (c.seq << 15) | 32767)
    AND (%(event_type)s::text IS NULL OR e.event_type = %(event_type)s::text)
ORDER BY e.event_id
LIMIT %(limit)s OFFSET %(offset)s

-- name: read_leases
-- Who claimed these commands last.
SELECT command_id, worker_id, attempt, status FROM noetl.command
WHERE execution_id = %(execution_id)s AND command_id = ANY(%(command_ids)s::bigint[]) AND attempt > 0

-- name: trace_step
-- The results of a step with all they descend from, oldest first, and the events that name them.
WITH RECURSIVE chain AS (
    SELECT r.ref_id, r.parent_ref_id FROM noetl.result_ref r
    WHERE r.execution_id = %(execution_id)s AND r.step = %(step)s
    UNION
    SELECT r.ref_id, r.parent_ref_id FROM noetl.result_ref r JOIN chain c ON r.ref_id = c.parent_ref_id
    WHERE r.execution_id = %(execution_id)s
),
named AS (
    SELECT DISTINCT ON (ref_id) (e.result -> 'reference' ->> 'ref_id')::bigint AS ref_id, e.status, e.event_id,
        e.result -> 'context' AS context
    FROM noetl.event e
    WHERE e.execution_id = %(execution_id)s AND e.result -> 'reference' ? 'ref_id'
    ORDER BY ref_id, e.event_id
)
SELECT r.ref_id, r.ref, r.parent_ref_id, r.step, r.task_label, r.shape, r.loop_epoch, r.iter_index, r.store_tier,
    r.physical_uri, r.content_type, r.bytes, r.sha256, r.compression, r.rows, r.preview, r.created_at, n.status,
    n.context, n.event_id
FROM (SELECT DISTINCT ref_id FROM chain) c
JOIN noetl.result_ref r ON r.execution_id = %(execution_id)s AND r.ref_id = c.ref_id
LEFT JOIN named n ON n.ref_id = r.ref_id
ORDER BY r.created_at, r.ref_id
LIMIT %(limit)s

-- name: find_event
-- One event by its id.
SELECT execution_id, created_at FROM noetl.event WHERE shard_id = %(shard_id)s AND event_id = %(event_id)s

-- name: list_stalled
-- Runs without an event for so long, which no worker holds a command of and no timer will wake. A run above one that
-- moves moves with it.
WITH RECURSIVE moving AS (
    SELECT x.execution_id, x.parent_execution_id FROM noetl.execution x
    WHERE x.status = 'RUNNING' AND (
        greatest(x.start_time, x.updated_at) >= clock_timestamp() - make_interval(mins => %(minutes)s)
        OR EXISTS (SELECT FROM noetl.event e WHERE e.execution_id = x.execution_id
            AND e.created_at >= clock_timestamp() - make_interval(mins => %(minutes)s))
        OR EXISTS (SELECT FROM noetl.command c WHERE c.execution_id = x.execution_id
            AND c.status = 'claimed' AND c.lease_until > clock_timestamp())
        OR EXISTS (SELECT FROM noetl.timer t WHERE t.execution_id = x.execution_id AND t.kind <> 'timeout'))
    UNION
    SELECT p.execution_id, p.parent_execution_id FROM noetl.execution p JOIN moving m
        ON p.execution_id = m.parent_execution_id
)
SELECT x.execution_id FROM noetl.execution x
WHERE x.status = 'RUNNING' AND NOT EXISTS (SELECT FROM moving m WHERE m.execution_id = x.execution_id)
ORDER BY x.execution_id
LIMIT %(limit)s
