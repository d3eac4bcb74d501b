-- name: finish_commands
-- Lock the reported commands in id order, finish those whose claim fits, say what became of each report.
-- A chunk (verdict partial) finishes nothing: it is taken while its claim stands, up to the report that ends it.
WITH given AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(reports)s::json) AS g (
        place int, execution_id bigint, command_id bigint, claim_token bigint, worker_id text, attempt int, status text)
    ORDER BY execution_id, command_id
),
judged AS MATERIALIZED (
    SELECT g.place, g.status AS verdict, c.*,
        c.claim_token = g.claim_token AS same_claim,
        c.status = 'claimed' AND (c.claim_token = g.claim_token OR (g.claim_token = 0
            AND c.worker_id = g.worker_id AND (g.attempt = 0 OR g.attempt = c.attempt))) AS fits
    FROM given g LEFT JOIN LATERAL (
        SELECT execution_id, command_id, status, claim_token, worker_id, attempt, step, loop_epoch, iter_index
        FROM noetl.command
        WHERE execution_id = g.execution_id AND command_id = g.command_id
        FOR NO KEY UPDATE
    ) c ON true
),
ruled AS MATERIALIZED (
    SELECT j.*, min(place) FILTER (WHERE fits AND verdict <> 'partial')
        OVER (PARTITION BY execution_id, command_id) AS end_place
    FROM judged j
),
finished AS (
    UPDATE noetl.command c SET status = r.verdict, lease_until = NULL
    FROM ruled r
    WHERE r.place = r.end_place AND c.execution_id = r.execution_id AND c.command_id = r.command_id
)
SELECT place, step, loop_epoch, iter_index, attempt,
    CASE
        WHEN place = end_place THEN 'accepted'
        WHEN command_id IS NULL THEN 'unknown'
        WHEN verdict = 'partial' THEN CASE WHEN fits AND coalesce(place < end_place, true) THEN 'accepted' ELSE 'fenced' END
        WHEN fits OR status IN ('completed', 'failed') OR (status = 'cancelled' AND same_claim) THEN 'duplicate'
        ELSE 'fenced'
    END AS outcome
FROM ruled
ORDER BY place

-- name: insert_results
-- Index the results of accepted reports; small payloads come along as text.
INSERT INTO noetl.result_ref (execution_id, ref_id, ref, step, task_label, shape, loop_epoch, iter_index,
    parent_ref_id, store_tier, physical_uri, content_type, bytes, sha256, compression, rows, preview, extracted,
    inline_payload)
SELECT g.execution_id, g.ref_id, g.ref, g.step, g.task_label, g.shape, g.loop_epoch, g.iter_index, g.parent_ref_id,
    g.store_tier, g.physical_uri, g.content_type, g.bytes, g.sha256, g.compression, g.rows, g.preview, g.extracted,
    convert_to(g.inline, 'UTF8')
FROM json_to_recordset(%(rows)s::json) AS g (
    execution_id bigint, ref_id bigint, ref text, step text, task_label text, shape text, loop_epoch bigint,
    iter_index int, parent_ref_id bigint, store_tier text, physical_uri text, content_type text, bytes bigint,
    sha256 text, compression text, rows bigint, preview jsonb, extracted jsonb, inline text)
ON CONFLICT (execution_id, ref_id) DO NOTHING

-- name: insert_executions
-- Create the rows of new executions; one whose id or idempotency key is taken is left out of the answer.
-- Those under a concurrency limit join their group, in the order in which they came.
WITH given AS MATERIALIZED (
    SELECT g.* FROM ROWS FROM (json_to_recordset(%(executions)s::json) AS (
        execution_id bigint, shard_id smallint, catalog_id bigint, path text, version int, parent_execution_id bigint,
        idempotency_key text, group_id bigint, group_key text, run_limit int)) WITH ORDINALITY
        AS g (execution_id, shard_id, catalog_id, path, version, parent_execution_id, idempotency_key, group_id,
            group_key, run_limit, place)
),
created AS (
    INSERT INTO noetl.execution (execution_id, shard_id, catalog_id, path, version, parent_execution_id, idempotency_key)
    SELECT execution_id, shard_id, catalog_id, path, version, parent_execution_id, idempotency_key
    FROM given ORDER BY idempotency_key NULLS LAST
    ON CONFLICT DO NOTHING
    RETURNING execution_id
),
joined AS (
    INSERT INTO noetl.concurrency (execution_id, group_id, key, run_limit)
    SELECT g.execution_id, g.group_id, g.group_key, g.run_limit
    FROM given g JOIN created USING (execution_id) WHERE g.group_id IS NOT NULL ORDER BY g.place
)
SELECT execution_id FROM created

-- name: find_starts
-- Who holds these execution ids or idempotency keys, and with which start events.
SELECT x.execution_id, x.idempotency_key, x.catalog_id, x.path, x.version, e.event_id, e.meta ->> 'nonce' AS nonce,
    e.meta ->> 'asked' AS asked
FROM noetl.execution x
LEFT JOIN noetl.event e ON e.execution_id = x.execution_id AND e.dedup_key = 'start'
WHERE x.execution_id = ANY(%(execution_ids)s::bigint[]) OR x.idempotency_key = ANY(%(keys)s::text[])

-- name: find_events_by_dedup
-- The ids of the inputs that already stand in the log under these keys.
SELECT e.execution_id, e.dedup_key, e.event_id
FROM json_to_recordset(%(keys)s::json) AS g (execution_id bigint, dedup_key text)
JOIN noetl.event e ON e.execution_id = g.execution_id AND e.dedup_key = g.dedup_key
