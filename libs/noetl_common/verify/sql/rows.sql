-- name: find_commands
-- Commands whose row and events do not fit: each is issued once, ends once at most, and has ended when its run has.
-- One that a worker was asked to stop has until its lease is over, and a minute for who sees to that.
WITH said AS (
    SELECT execution_id, command_id, min(shard_id) AS shard_id, max(event_id) AS event_id, max(step) AS step,
        count(*) FILTER (WHERE event_type = 'command.issued') AS issued,
        count(*) FILTER (WHERE event_type <> 'command.issued') AS ended,
        max(event_type) FILTER (WHERE event_type <> 'command.issued') AS how
    FROM noetl.event
    WHERE event_type IN ('command.issued', 'command.completed', 'command.failed', 'command.cancelled')
        AND execution_id BETWEEN %(low)s AND %(high)s AND NOT execution_id <@ %(leaving)s::int8multirange
    GROUP BY execution_id, command_id
),
held AS (
    SELECT execution_id, command_id, shard_id, step, status, issued_event_id,
        cancel_requested AND status = 'claimed' AND lease_until > clock_timestamp() - interval '1 min' AS is_stopping
    FROM noetl.command
    WHERE execution_id BETWEEN %(low)s AND %(high)s AND NOT execution_id <@ %(leaving)s::int8multirange
),
judged AS (
    SELECT execution_id, command_id, coalesce(said.shard_id, held.shard_id) AS shard_id,
        coalesce(said.event_id, held.issued_event_id) AS event_id, coalesce(said.step, held.step) AS step,
        said.issued, said.ended, said.how, held.status, held.is_stopping
    FROM said FULL JOIN held USING (execution_id, command_id)
)
SELECT j.*
FROM judged j
WHERE j.issued IS DISTINCT FROM 1 OR j.ended > 1 OR j.status IS NULL
    OR (j.ended = 1 AND j.how <> 'command.' || j.status)
    OR (j.ended = 0 AND (j.status NOT IN ('pending', 'claimed') OR (NOT j.is_stopping AND EXISTS (
        SELECT FROM noetl.event e WHERE e.execution_id = j.execution_id AND e.dedup_key = 'end'))))
ORDER BY j.execution_id, j.command_id

-- name: find_timers
-- Timers of runs that are over.
SELECT t.execution_id, t.shard_id, t.timer_id, t.kind, t.cause_event_id
FROM noetl.timer t
WHERE t.execution_id BETWEEN %(low)s AND %(high)s AND EXISTS (
    SELECT FROM noetl.event e WHERE e.execution_id = t.execution_id AND e.dedup_key = 'end')
ORDER BY t.execution_id, t.timer_id

-- name: find_places
-- Places in concurrency groups that are not as the log says, or are more than any of those who hold one allows.
WITH held AS MATERIALIZED (
    SELECT c.execution_id, c.group_id, c.key, c.run_limit, c.is_admitted AS is_held,
        count(*) FILTER (WHERE c.is_admitted) OVER (PARTITION BY c.group_id) AS places,
        max(c.run_limit) FILTER (WHERE c.is_admitted) OVER (PARTITION BY c.group_id) AS places_max
    FROM noetl.concurrency c
),
said AS (
    SELECT h.*, x.shard_id, EXISTS (SELECT FROM noetl.event e
            WHERE e.execution_id = h.execution_id AND e.dedup_key = 'admitted') AS is_admitted,
        EXISTS (SELECT FROM noetl.event e WHERE e.execution_id = h.execution_id AND e.dedup_key = 'end') AS is_over
    FROM held h LEFT JOIN noetl.execution x ON x.execution_id = h.execution_id
    WHERE h.execution_id BETWEEN %(low)s AND %(high)s
)
SELECT execution_id, coalesce(shard_id, -1) AS shard_id, key, run_limit, places, is_held, is_admitted, is_over FROM said
WHERE is_over OR is_held <> is_admitted OR (is_held AND places > places_max)
ORDER BY execution_id

-- name: find_references
-- References in events to results that have no row, or one of another digest or size. Those of loops as a whole have
-- none by nature, and null needs none.
WITH spoken AS NOT MATERIALIZED (
    SELECT execution_id, shard_id, event_id, result FROM noetl.event
    WHERE execution_id BETWEEN %(low)s AND %(high)s AND NOT execution_id <@ %(leaving)s::int8multirange
),
named AS (
    SELECT execution_id, shard_id, event_id, result -> 'reference' AS ref FROM spoken WHERE result ? 'reference'
    UNION ALL
    SELECT execution_id, shard_id, event_id, result -> 'parent_ref' FROM spoken WHERE result ? 'parent_ref'
    UNION ALL
    SELECT s.execution_id, s.shard_id, s.event_id, c.ref FROM spoken s CROSS JOIN LATERAL (
        SELECT s.result #> '{context,prior}' UNION ALL SELECT s.result #> '{context,chunk}'
        UNION ALL SELECT s.result #> '{context,workload,ref}' UNION ALL SELECT s.result #> '{context,items,ref}'
        UNION ALL SELECT jsonb_path_query(s.result, '$.context.ctx.*.ref')
        UNION ALL SELECT jsonb_path_query(s.result, '$.context.set.*.ref')) AS c (ref)
    WHERE s.result -> 'context' ?| ARRAY['prior', 'chunk', 'workload', 'items', 'ctx', 'set']
),
wanted AS (
    SELECT n.execution_id, n.shard_id, n.event_id, f.execution_id AS of_run, f.ref_id, f.bytes, f.sha256, f.label
    FROM named n CROSS JOIN LATERAL jsonb_to_record(n.ref) AS f (execution_id bigint, ref_id bigint, bytes bigint,
        sha256 text, label text, shape text)
    WHERE jsonb_typeof(n.ref) = 'object' AND f.ref_id <> 0 AND f.shape IS DISTINCT FROM 'loop'
)
SELECT w.execution_id, min(w.shard_id) AS shard_id, min(w.event_id) AS event_id, w.bytes, w.sha256,
    'noetl://execution/' || w.of_run || '/result/' || coalesce(w.label, '') || '/' || w.ref_id AS ref,
    coalesce(r.bytes, k.bytes) AS row_bytes, coalesce(r.sha256, k.sha256) AS row_sha256
FROM wanted w
LEFT JOIN noetl.result_ref r ON r.execution_id = w.of_run AND r.ref_id = w.ref_id
LEFT JOIN noetl.kept_result k ON k.execution_id = w.of_run AND k.ref_id = w.ref_id
WHERE (r.ref_id IS NULL AND k.ref_id IS NULL AND NOT EXISTS (
        SELECT FROM noetl.manifest_part p CROSS JOIN LATERAL jsonb_array_elements(p.body::jsonb) AS l (line)
        WHERE p.execution_id = w.of_run AND p.kind = 'trace' AND (l.line ->> 0)::bigint = w.ref_id))
    OR w.bytes <> coalesce(r.bytes, k.bytes) OR w.sha256 <> coalesce(r.sha256, k.sha256)
GROUP BY w.execution_id, w.of_run, w.ref_id, w.label, w.bytes, w.sha256, r.bytes, k.bytes, r.sha256, k.sha256
ORDER BY w.execution_id, event_id

-- name: find_orphaned
-- Results whose parent is nowhere: not in their run, not in its children, not among those that outlived their runs.
SELECT r.execution_id, x.shard_id, r.ref, r.parent_ref_id
FROM noetl.result_ref r LEFT JOIN noetl.execution x ON x.execution_id = r.execution_id
WHERE r.parent_ref_id <> 0 AND r.execution_id BETWEEN %(low)s AND %(high)s
    AND NOT r.execution_id <@ %(leaving)s::int8multirange
    AND NOT EXISTS (SELECT FROM noetl.result_ref p
        WHERE p.execution_id = r.execution_id AND p.ref_id = r.parent_ref_id)
    AND NOT EXISTS (SELECT FROM noetl.execution c JOIN noetl.result_ref p ON p.execution_id = c.execution_id
        WHERE c.parent_execution_id = r.execution_id AND p.ref_id = r.parent_ref_id)
    AND NOT EXISTS (SELECT FROM noetl.event e
        WHERE e.execution_id = r.execution_id AND e.event_type = 'child.ended'
            AND (e.result #>> '{reference,ref_id}')::bigint = r.parent_ref_id)
ORDER BY r.execution_id, r.ref_id

-- name: find_cycles
-- Results that cannot be reached from one that has no parent: those of a circle, and those behind one.
WITH RECURSIVE link AS MATERIALIZED (
    SELECT execution_id, ref_id, parent_ref_id, ref FROM noetl.result_ref
    WHERE parent_ref_id <> 0 AND execution_id BETWEEN %(low)s AND %(high)s
        AND NOT execution_id <@ %(leaving)s::int8multirange
),
reached AS (
    SELECT l.execution_id, l.ref_id FROM link l WHERE NOT EXISTS (
        SELECT FROM link p WHERE p.execution_id = l.execution_id AND p.ref_id = l.parent_ref_id)
    UNION ALL
    SELECT l.execution_id, l.ref_id
    FROM reached r JOIN link l ON l.execution_id = r.execution_id AND l.parent_ref_id = r.ref_id
)
SELECT c.execution_id, x.shard_id, c.ref, c.results FROM (
    SELECT l.execution_id, (array_agg(l.ref ORDER BY l.ref_id))[1] AS ref, count(*) AS results
    FROM link l
    WHERE NOT EXISTS (SELECT FROM reached r WHERE r.execution_id = l.execution_id AND r.ref_id = l.ref_id)
    GROUP BY l.execution_id
) c LEFT JOIN noetl.execution x USING (execution_id)
ORDER BY c.execution_id
