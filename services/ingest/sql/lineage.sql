-- name: read_edges
-- What each result of a run came from: the result before it, and the context its command was given.
SELECT r.ref_id, r.parent_ref_id, r.step, r.loop_epoch, r.created_at, q.context_id
FROM noetl.result_ref r
LEFT JOIN (
    SELECT DISTINCT ON (ref_id) (e.result -> 'reference' ->> 'ref_id')::bigint AS ref_id, e.command_id
    FROM noetl.event e
    WHERE e.execution_id = %(execution_id)s AND e.result -> 'reference' ? 'ref_id'
    ORDER BY ref_id, e.event_id
) n ON n.ref_id = r.ref_id
LEFT JOIN noetl.command q ON q.execution_id = %(execution_id)s AND q.command_id = n.command_id
WHERE r.execution_id = %(execution_id)s

-- name: read_given
-- The results that each context of a run's commands names: [execution, result, loop].
SELECT c.context_id, jsonb_agg(DISTINCT jsonb_build_array(g.ref -> 'execution_id', g.ref -> 'ref_id',
    coalesce(g.ref -> 'epoch', '0'::jsonb))) AS inputs
FROM noetl.command_context c CROSS JOIN LATERAL (
    SELECT jsonb_path_query(c.body, '$.results.*') UNION ALL
    SELECT jsonb_path_query(c.body, '$.ctx.*.ref') UNION ALL
    SELECT jsonb_path_query(c.body, '$.workload.ref') UNION ALL
    SELECT c.body -> 'last') AS g (ref)
WHERE c.execution_id = %(execution_id)s AND jsonb_typeof(g.ref) = 'object'
GROUP BY c.context_id

-- name: read_links
-- The results of other runs that a run's events name as those of its steps: what its children returned.
SELECT DISTINCT e.step, (e.result -> 'reference' ->> 'execution_id')::bigint AS execution_id,
    (e.result -> 'reference' ->> 'ref_id')::bigint AS ref_id,
    coalesce((e.result -> 'reference' ->> 'epoch')::bigint, 0) AS epoch
FROM noetl.event e
WHERE e.execution_id = %(execution_id)s AND e.result -> 'reference' ? 'ref_id' AND e.step IS NOT NULL
    AND (e.result -> 'reference' ->> 'execution_id')::bigint <> %(execution_id)s

-- name: read_traced
-- Results of a run in full, without their payloads, with the first event that names each.
SELECT r.ref_id, r.ref, r.parent_ref_id, r.step, r.task_label, r.shape, r.loop_epoch, r.iter_index, r.store_tier,
    r.physical_uri, r.content_type, r.bytes, r.sha256, r.compression, r.rows, r.preview, r.created_at, n.status,
    n.context, n.event_id
FROM noetl.result_ref r
LEFT JOIN (
    SELECT DISTINCT ON (ref_id) (e.result -> 'reference' ->> 'ref_id')::bigint AS ref_id, e.status, e.event_id,
        e.result -> 'context' AS context
    FROM noetl.event e
    WHERE e.execution_id = %(execution_id)s AND e.result -> 'reference' ? 'ref_id'
    ORDER BY ref_id, e.event_id
) n ON n.ref_id = r.ref_id
WHERE r.execution_id = %(execution_id)s AND r.ref_id = ANY (%(ref_ids)s)
