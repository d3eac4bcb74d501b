-- name: sample_payloads
-- Rows of results whose payloads are to be read: all that have not expired, or as many as wanted, spread by their ids.
SELECT h.*, x.shard_id FROM (
    SELECT execution_id, ref_id, ref, store_tier, physical_uri, bytes, sha256, compression, inline_payload
    FROM noetl.result_ref
    WHERE execution_id BETWEEN %(low)s AND %(high)s AND NOT execution_id <@ %(leaving)s::int8multirange
        AND (expires_at IS NULL OR expires_at > clock_timestamp())
    UNION ALL
    SELECT execution_id, ref_id, ref, store_tier, physical_uri, bytes, sha256, compression, inline_payload
    FROM noetl.kept_result k
    WHERE execution_id BETWEEN %(low)s AND %(high)s AND NOT EXISTS (SELECT FROM noetl.result_ref r
        WHERE r.execution_id = k.execution_id AND r.ref_id = k.ref_id
            AND NOT r.execution_id <@ %(leaving)s::int8multirange)
        AND (expires_at IS NULL OR expires_at > clock_timestamp())
) h LEFT JOIN noetl.execution x USING (execution_id)
ORDER BY CASE WHEN %(wanted)s::bigint IS NOT NULL THEN hashint8extended(h.ref_id, %(seed)s::bigint) END
LIMIT %(wanted)s::bigint

-- name: is_named
-- Whether a result's row is (still) there.
SELECT EXISTS (SELECT FROM noetl.result_ref WHERE execution_id = %(execution_id)s AND ref_id = %(ref_id)s)
    OR EXISTS (SELECT FROM noetl.kept_result WHERE execution_id = %(execution_id)s AND ref_id = %(ref_id)s) AS is_named

-- name: find_unnamed
-- Which of these addresses no row names, though the run they belong to is over, or unknown.
SELECT u.uri, u.execution_id, x.shard_id, o.seen_at
FROM ROWS FROM (json_to_recordset(%(payloads)s::json) AS (uri text, execution_id bigint)) AS u (uri, execution_id)
LEFT JOIN noetl.execution x ON x.execution_id = u.execution_id
LEFT JOIN noetl.orphan_payload o ON o.uri = u.uri
WHERE x.status IS DISTINCT FROM 'RUNNING'
    AND NOT EXISTS (SELECT FROM noetl.result_ref r WHERE r.execution_id = u.execution_id AND r.physical_uri = u.uri)
    AND NOT EXISTS (SELECT FROM noetl.kept_result k WHERE k.execution_id = u.execution_id AND k.physical_uri = u.uri)
ORDER BY u.uri
