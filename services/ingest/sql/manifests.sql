-- name: read_manifest
-- How much a folded run's history holds.
SELECT events, results, counts FROM noetl.manifest WHERE execution_id = %(execution_id)s

-- name: index_event_parts
-- Which parts a folded run's history has.
SELECT part_no, first, count FROM noetl.manifest_part
WHERE execution_id = %(execution_id)s AND kind = 'events' ORDER BY part_no

-- name: read_event_parts
-- Some parts of a folded run's history, in order.
SELECT body FROM noetl.manifest_part
WHERE execution_id = %(execution_id)s AND kind = 'events' AND step = '' AND part_no BETWEEN %(first)s AND %(last)s
ORDER BY part_no

-- name: read_trace_parts
-- The lineage of a folded run's results, step by step, oldest first.
SELECT kind, step, body FROM noetl.manifest_part
WHERE execution_id = %(execution_id)s AND kind IN ('trace', 'links')
ORDER BY kind, step, part_no

-- name: read_kept_results
-- Rows of results that outlived their runs, by key.
SELECT r.execution_id, r.ref_id, r.step, r.task_label, r.shape, r.loop_epoch, r.iter_index, r.parent_ref_id,
    r.store_tier, r.physical_uri, r.content_type, r.bytes, r.sha256, r.compression, r.rows, r.preview, r.extracted,
    r.inline_payload
FROM json_to_recordset(%(keys)s::json) AS g (execution_id bigint, ref_id bigint)
JOIN noetl.kept_result r ON r.execution_id = g.execution_id AND r.ref_id = g.ref_id
WHERE r.expires_at IS NULL OR r.expires_at > clock_timestamp()

-- name: read_kept_loop_results
-- The results of one loop's items that outlived their run, in index order, from an index on.
SELECT DISTINCT ON (iter_index) execution_id, ref_id, step, task_label, shape, loop_epoch, iter_index, parent_ref_id,
    store_tier, physical_uri, content_type, bytes, sha256, compression, rows, preview, extracted, inline_payload
FROM noetl.kept_result
WHERE execution_id = %(execution_id)s AND loop_epoch = %(epoch)s AND iter_index > %(after)s AND loop_epoch <> 0
    AND (expires_at IS NULL OR expires_at > clock_timestamp())
ORDER BY iter_index, created_at DESC, ref_id DESC
LIMIT %(limit)s

-- name: delete_kept_results
-- Forget results that outlived their run: of a step, or of all; never its workload and variables.
DELETE FROM noetl.kept_result
WHERE execution_id = %(execution_id)s AND ref_id <> %(kept)s
    AND (%(step)s::text IS NULL OR step = %(step)s::text OR task_label = %(step)s::text)
    AND NOT starts_with(step, 'ctx.') AND NOT starts_with(task_label, 'ctx.')

-- name: find_compacted
-- When runs were folded, of those that are.
SELECT execution_id, compacted_at FROM noetl.execution
WHERE execution_id = ANY (%(ids)s) AND compacted_at IS NOT NULL
