-- name: keep_result_until
-- Let a result that a client stored expire after so long, null: never; written again it counts as new.
UPDATE noetl.result_ref
SET scope = %(scope)s, created_at = clock_timestamp(), expires_at = clock_timestamp() + make_interval(secs => %(ttl_s)s::float8)
WHERE execution_id = %(execution_id)s AND ref_id = %(ref_id)s
RETURNING ref, expires_at

-- name: find_named_result
-- The newest result of a step or under a name that has not expired; items of loops are not among them.
WITH held AS (
    SELECT execution_id, ref_id, step, task_label, shape, loop_epoch, iter_index, parent_ref_id, store_tier,
        physical_uri, content_type, bytes, sha256, compression, rows, preview, extracted, inline_payload, created_at,
        expires_at FROM noetl.result_ref WHERE execution_id = %(execution_id)s
    UNION ALL
    SELECT execution_id, ref_id, step, task_label, shape, loop_epoch, iter_index, parent_ref_id, store_tier,
        physical_uri, content_type, bytes, sha256, compression, rows, preview, extracted, inline_payload, created_at,
        expires_at FROM noetl.kept_result k WHERE execution_id = %(execution_id)s AND NOT EXISTS (
        SELECT FROM noetl.result_ref r WHERE r.execution_id = k.execution_id AND r.ref_id = k.ref_id)
)
SELECT r.execution_id, r.ref_id, r.step, r.task_label, r.shape, r.loop_epoch, r.iter_index, r.parent_ref_id,
    r.store_tier, r.physical_uri, r.content_type, r.bytes, r.sha256, r.compression, r.rows, r.preview, r.extracted,
    r.inline_payload
FROM held r
WHERE r.loop_epoch = 0
    AND (r.task_label = %(name)s OR (r.step = %(name)s AND r.task_label = ''))
    AND (r.expires_at IS NULL OR r.expires_at > clock_timestamp())
ORDER BY r.created_at DESC, r.ref_id DESC
LIMIT 1

-- name: sum_loop_bytes
-- How large the results of a loop's items are together.
SELECT coalesce(sum(bytes), 0)::bigint AS bytes FROM noetl.result_ref
WHERE execution_id = %(execution_id)s AND loop_epoch = %(epoch)s AND iter_index >= 0

-- name: list_results
-- A page of a run's results, in the order of their ids.
WITH held AS (
    SELECT ref_id, ref, step, task_label, shape, loop_epoch, iter_index, store_tier, content_type, bytes, sha256, rows,
        preview, created_at, expires_at FROM noetl.result_ref WHERE execution_id = %(execution_id)s
    UNION ALL
    SELECT ref_id, ref, step, task_label, shape, loop_epoch, iter_index, store_tier, content_type, bytes, sha256, rows,
        preview, created_at, expires_at FROM noetl.kept_result k WHERE execution_id = %(execution_id)s AND NOT EXISTS (
        SELECT FROM noetl.result_ref r WHERE r.execution_id = k.execution_id AND r.ref_id = k.ref_id)
)
SELECT ref_id, ref, step, task_label, shape, loop_epoch, iter_index, store_tier, content_type, bytes, sha256, rows,
    preview, created_at, expires_at
FROM held
WHERE ref_id > %(after)s
    AND (expires_at IS NULL OR expires_at > clock_timestamp())
ORDER BY ref_id
LIMIT %(limit)s

-- name: list_doomed_payloads
-- The payloads in tiers that only the results to be deleted name. A step's name null: of all steps.
WITH judged AS (
    SELECT physical_uri, store_tier,
        (%(step)s::text IS NULL OR step = %(step)s::text OR task_label = %(step)s::text) AND ref_id <> %(kept)s
            AND NOT starts_with(step, 'ctx.') AND NOT starts_with(task_label, 'ctx.') AS doomed
    FROM (SELECT physical_uri, store_tier, step, task_label, ref_id FROM noetl.result_ref
            WHERE execution_id = %(execution_id)s
        UNION SELECT physical_uri, store_tier, step, task_label, ref_id FROM noetl.kept_result
            WHERE execution_id = %(execution_id)s) held
    WHERE physical_uri <> ''
)
SELECT physical_uri, bool_or(store_tier = 'kv') AS is_copied FROM judged GROUP BY physical_uri HAVING bool_and(doomed)

-- name: delete_results
-- Forget results of a run: of a step, or of all; never its workload and variables.
DELETE FROM noetl.result_ref
WHERE execution_id = %(execution_id)s AND ref_id <> %(kept)s
    AND (%(step)s::text IS NULL OR step = %(step)s::text OR task_label = %(step)s::text)
    AND NOT starts_with(step, 'ctx.') AND NOT starts_with(task_label, 'ctx.')

-- name: find_live_ancestor
-- A run above this one that has not ended and may still read its results.
WITH RECURSIVE above AS (
    SELECT parent_execution_id FROM noetl.execution WHERE execution_id = %(execution_id)s
    UNION
    SELECT x.parent_execution_id FROM noetl.execution x JOIN above a ON x.execution_id = a.parent_execution_id
)
SELECT x.execution_id FROM noetl.execution x JOIN above a ON x.execution_id = a.parent_execution_id
WHERE x.status = 'RUNNING'
LIMIT 1

-- name: count_results
-- A run's results by tier.
WITH held AS (
    SELECT ref_id, store_tier, bytes FROM noetl.result_ref WHERE execution_id = %(execution_id)s
    UNION ALL
    SELECT ref_id, store_tier, bytes FROM noetl.kept_result k WHERE execution_id = %(execution_id)s AND NOT EXISTS (
        SELECT FROM noetl.result_ref r WHERE r.execution_id = k.execution_id AND r.ref_id = k.ref_id)
)
SELECT store_tier, count(*) AS count, coalesce(sum(bytes), 0)::bigint AS bytes FROM held
GROUP BY store_tier ORDER BY store_tier

-- name: estimate_results
-- How many results there are in all, as the planner last saw it: counting them would read the whole table.
SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint AS count
FROM pg_partition_tree('noetl.result_ref') t JOIN pg_class c ON c.oid = t.relid
WHERE t.isleaf
