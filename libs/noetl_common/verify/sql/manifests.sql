-- name: find_unmatched_manifests
-- Folded runs without a manifest, and manifests of runs that are not folded.
SELECT coalesce(x.execution_id, m.execution_id) AS execution_id, coalesce(x.shard_id, m.shard_id) AS shard_id,
    m.execution_id IS NOT NULL AS has_manifest
FROM (SELECT execution_id, shard_id FROM noetl.execution WHERE compacted_at IS NOT NULL) x
FULL JOIN noetl.manifest m USING (execution_id)
WHERE (x.execution_id IS NULL OR m.execution_id IS NULL)
    AND coalesce(x.execution_id, m.execution_id) BETWEEN %(low)s AND %(high)s
ORDER BY 1

-- name: read_manifests
-- Each manifest, and how much of its run the log still holds; null when it holds nothing.
SELECT m.execution_id, m.shard_id, m.terminal_event_id, m.events, m.commands, m.results, m.counts, m.last_event_id,
    m.first_event_time, m.last_event_time, m.trace_digest, m.parts, l.events AS log_events, l.last AS log_last_event_id
FROM noetl.manifest m LEFT JOIN LATERAL (
    SELECT count(*) AS events, max(e.event_id) AS last FROM noetl.event e
    WHERE e.execution_id = m.execution_id HAVING count(*) > 0) l ON true
WHERE m.execution_id BETWEEN %(low)s AND %(high)s
ORDER BY m.execution_id

-- name: read_parts
-- The parts of all manifests, in order.
SELECT execution_id, kind, step, part_no, first, count, body FROM noetl.manifest_part
WHERE execution_id BETWEEN %(low)s AND %(high)s
ORDER BY execution_id, kind, step, part_no

-- name: read_traced
-- What the canonical trace of each folded run is made of, in its order.
SELECT p.execution_id, l.line ->> 1 AS event_type, coalesce(l.line ->> 2, '') AS step,
    coalesce((l.line ->> 5)::bigint, 0) AS loop_epoch, coalesce((l.line ->> 6)::int, -1) AS iter_index,
    coalesce(l.line ->> 7, '') AS status
FROM noetl.manifest_part p CROSS JOIN LATERAL json_array_elements(p.body::json) AS l (line)
WHERE p.kind = 'events' AND p.execution_id BETWEEN %(low)s AND %(high)s
ORDER BY p.execution_id, (l.line ->> 1) COLLATE "C", coalesce(l.line ->> 2, '') COLLATE "C",
    coalesce((l.line ->> 6)::int, -1), coalesce(l.line ->> 7, '') COLLATE "C"

-- name: find_untraced
-- References in the history of runs that left the log to results that no manifest lists, and that did not outlive it.
WITH named AS (
    SELECT p.execution_id, m.shard_id, (l.line ->> 0)::bigint AS event_id, l.line #> '{8,reference}' AS ref
    FROM noetl.manifest m JOIN noetl.manifest_part p ON p.execution_id = m.execution_id AND p.kind = 'events'
    CROSS JOIN LATERAL jsonb_array_elements(p.body::jsonb) AS l (line)
    WHERE m.execution_id BETWEEN %(low)s AND %(high)s
        AND NOT EXISTS (SELECT FROM noetl.event e WHERE e.execution_id = m.execution_id)
),
traced AS (
    SELECT p.execution_id, (l.line ->> 0)::bigint AS ref_id
    FROM noetl.manifest_part p CROSS JOIN LATERAL jsonb_array_elements(p.body::jsonb) AS l (line)
    WHERE p.kind = 'trace'
),
wanted AS (
    SELECT execution_id, shard_id, event_id, (ref ->> 'execution_id')::bigint AS of_run,
        (ref ->> 'ref_id')::bigint AS ref_id, coalesce(ref ->> 'label', '') AS label
    FROM named
    WHERE jsonb_typeof(ref) = 'object' AND (ref ->> 'ref_id')::bigint <> 0
        AND coalesce(ref ->> 'shape', 'plain') <> 'loop'
)
SELECT w.execution_id, w.shard_id, min(w.event_id) AS event_id,
    'noetl://execution/' || w.of_run || '/result/' || w.label || '/' || w.ref_id AS ref
FROM wanted w
WHERE NOT EXISTS (SELECT FROM traced t WHERE t.execution_id = w.of_run AND t.ref_id = w.ref_id)
    AND NOT EXISTS (SELECT FROM noetl.result_ref r WHERE r.execution_id = w.of_run AND r.ref_id = w.ref_id)
    AND NOT EXISTS (SELECT FROM noetl.kept_result k WHERE k.execution_id = w.of_run AND k.ref_id = w.ref_id)
GROUP BY w.execution_id, w.shard_id, w.of_run, w.ref_id, w.label
ORDER BY w.execution_id
