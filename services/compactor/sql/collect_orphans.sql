-- name: name_payloads
-- Which of these addresses the row of some result names that has not expired.
SELECT DISTINCT u.uri FROM unnest(%(uris)s::text[]) AS u (uri) WHERE EXISTS (
    SELECT FROM noetl.result_ref r
    WHERE r.execution_id = (regexp_match(u.uri, '^\w+://exec/(\d+)/'))[1]::bigint AND r.physical_uri = u.uri
        AND (r.expires_at IS NULL OR r.expires_at > clock_timestamp())
) OR EXISTS (
    SELECT FROM noetl.kept_result k
    WHERE k.execution_id = (regexp_match(u.uri, '^\w+://exec/(\d+)/'))[1]::bigint AND k.physical_uri = u.uri
)

-- name: judge_executions
-- Which of these executions may still name what no row names: those that have not ended, or whose kin has not.
WITH RECURSIVE above AS (
    SELECT x.execution_id AS origin, x.execution_id, x.parent_execution_id, x.status, x.end_time
    FROM noetl.execution x WHERE x.execution_id = ANY (%(ids)s)
    UNION
    SELECT a.origin, p.execution_id, p.parent_execution_id, p.status, p.end_time
    FROM above a JOIN noetl.execution p ON p.execution_id = a.parent_execution_id
)
SELECT DISTINCT origin FROM above WHERE status = 'RUNNING' OR end_time IS NULL OR end_time >= %(cutoff)s

-- name: mark_orphans
-- Note payloads that no row names; one noted before keeps its time.
INSERT INTO noetl.orphan_payload (uri) SELECT unnest(%(uris)s::text[]) ON CONFLICT (uri) DO NOTHING

-- name: take_orphans
-- Those of these payloads that were noted long enough ago to be deleted.
SELECT uri FROM noetl.orphan_payload
WHERE uri = ANY (%(uris)s) AND seen_at < clock_timestamp() - make_interval(secs => %(age_s)s)

-- name: clear_orphans
-- Forget notes: the payload is gone, or a row names it again.
DELETE FROM noetl.orphan_payload WHERE uri = ANY (%(uris)s)

-- name: take_expired
-- Kept results whose time is over.
SELECT k.execution_id, k.ref_id FROM noetl.kept_result k
WHERE k.expires_at <= clock_timestamp() ORDER BY k.expires_at LIMIT %(limit)s

-- name: drop_kept
-- Forget kept results.
DELETE FROM noetl.kept_result k USING json_to_recordset(%(keys)s::json) AS g (execution_id bigint, ref_id bigint)
WHERE k.execution_id = g.execution_id AND k.ref_id = g.ref_id

-- name: ping
-- Ask whether the database answers.
SELECT 1
