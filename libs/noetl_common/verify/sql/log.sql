-- name: hold_tables
-- Keep the parts of the log from leaving while they are read. Taken before the snapshot is.
LOCK TABLE noetl.event, noetl.command, noetl.command_context, noetl.result_ref IN ACCESS SHARE MODE

-- name: read_shards
-- How far each shard is appended, routed and projected.
SELECT c.shard_id, c.seq AS routed_seq, h.seq AS head_seq, p.last_projected_event_id AS projected
FROM noetl.shard_cursor c JOIN noetl.shard_head h USING (shard_id) JOIN noetl.projection_checkpoint p USING (shard_id)
ORDER BY c.shard_id

-- name: read_leaving
-- The execution ids whose part of the log is on its way out, or gone: their manifests stand for them.
SELECT coalesce(range_agg(int8range(low, high)), int8multirange())::text AS leaving
FROM noetl.compaction WHERE state NOT IN ('folded', 'sealed')

-- name: find_misplaced
-- Events of a shard that do not follow the one before them: an input by the next number, a consequence by the next
-- place behind its cause, in the same run. What left the log counts as its manifest has it; behind the head ends it.
WITH numbered AS (
    SELECT event_id, execution_id FROM noetl.event WHERE shard_id = %(shard_id)s
    UNION ALL
    SELECT (l.line ->> 0)::bigint, p.execution_id
    FROM noetl.manifest m JOIN noetl.manifest_part p ON p.execution_id = m.execution_id AND p.kind = 'events'
    CROSS JOIN LATERAL jsonb_array_elements(p.body::jsonb) AS l (line)
    WHERE m.shard_id = %(shard_id)s AND NOT EXISTS (
        SELECT FROM noetl.event e WHERE e.execution_id = m.execution_id)
    UNION ALL
    SELECT (%(shard_id)s::bigint << 55) | ((%(head)s::bigint + 1) << 15), 0
),
stepped AS (
    SELECT event_id, execution_id, lag(event_id) OVER in_order AS before, lag(execution_id) OVER in_order AS run_before
    FROM numbered WINDOW in_order AS (ORDER BY event_id)
)
SELECT %(shard_id)s::int AS shard_id, event_id, execution_id, before, run_before
FROM stepped
WHERE CASE WHEN (event_id & 32767) = 0
    THEN (event_id >> 15) & 1099511627775 <> coalesce((before >> 15) & 1099511627775, 0) + 1
    ELSE event_id <> coalesce(before, 0) + 1 OR execution_id <> run_before END
ORDER BY event_id

-- name: read_kept
-- What stands of each run beside the log, in the order of their ids.
SELECT x.execution_id, x.shard_id, x.status, x.current_step, x.progress, x.result, x.error, x.end_time, x.last_event_id,
    x.compacted_at IS NOT NULL AS is_compacted, s.last_event_id AS state_event_id, s.state::text AS state,
    p.last_event_id AS projection_event_id, p.state::text AS projection
FROM noetl.execution x
LEFT JOIN noetl.execution_state s ON s.execution_id = x.execution_id
LEFT JOIN noetl.projection_state p ON p.execution_id = x.execution_id
WHERE x.execution_id BETWEEN %(low)s AND %(high)s
ORDER BY x.execution_id

-- name: read_log
-- Every event, run by run.
SELECT execution_id, event_id, event_type, step, command_id, attempt, loop_epoch, iter_index, status, result, meta,
    dedup_key, catalog_id, parent_execution_id, worker_id, event_time, shard_id
FROM noetl.event
WHERE execution_id BETWEEN %(low)s AND %(high)s
ORDER BY execution_id, event_id

-- name: read_folded_log
-- The history of runs whose part of the log is gone, run by run, from their manifests.
SELECT p.execution_id, p.body
FROM noetl.manifest_part p
WHERE p.kind = 'events' AND p.execution_id BETWEEN %(low)s AND %(high)s
    AND NOT EXISTS (SELECT FROM noetl.event e WHERE e.execution_id = p.execution_id)
ORDER BY p.execution_id, p.part_no
