-- What `noetl compact --dry-run` reads.

-- name: compactable
-- For each range of the log: its runs, what is folded, what would be folded now, what waits and why, how far it is.
WITH RECURSIVE part AS (
    SELECT substring(child.relname FROM 'event_(.*)') AS name, i.inhdetachpending,
        (regexp_match(pg_get_expr(child.relpartbound, child.oid), 'FROM \(''?(\d+)''?\) TO \(''?(\d+)''?\)'))[1]::bigint
            AS low,
        (regexp_match(pg_get_expr(child.relpartbound, child.oid), 'FROM \(''?(\d+)''?\) TO \(''?(\d+)''?\)'))[2]::bigint
            AS high
    FROM pg_inherits i JOIN pg_class child ON child.oid = i.inhrelid
    WHERE i.inhparent = 'noetl.event'::regclass
    UNION SELECT suffix, false, low, high FROM noetl.compaction WHERE state <> 'dropped'
),
unready AS (
    SELECT execution_id, parent_execution_id, status FROM noetl.execution
    WHERE compacted_at IS NULL AND (status = 'RUNNING' OR end_time IS NULL OR end_time >= %(cutoff)s)
),
above AS (
    SELECT execution_id, parent_execution_id FROM unready
    UNION SELECT p.execution_id, p.parent_execution_id
    FROM above a JOIN noetl.execution p ON p.execution_id = a.parent_execution_id
),
below AS (
    SELECT execution_id FROM unready
    UNION SELECT d.execution_id FROM below b JOIN noetl.execution d ON d.parent_execution_id = b.execution_id
),
pinning AS (SELECT execution_id FROM above UNION SELECT execution_id FROM below),
judged AS (
    SELECT p.name, x.execution_id, CASE
        WHEN x.compacted_at IS NOT NULL THEN 'folded'
        WHEN x.status = 'RUNNING' THEN 'live'
        WHEN x.end_time IS NULL OR x.end_time >= %(cutoff)s THEN 'recent'
        WHEN x.execution_id IN (SELECT execution_id FROM pinning) THEN 'kin'
        ELSE 'ready' END AS judgement
    FROM part p JOIN noetl.execution x ON x.execution_id >= p.low AND x.execution_id < p.high
    WHERE p.high <= %(closed_before)s
)
SELECT p.name AS partition, coalesce(c.state, CASE WHEN p.high > %(closed_before)s THEN 'in use' ELSE 'closed' END) AS state,
    count(j.execution_id) AS runs, count(*) FILTER (WHERE judgement = 'folded') AS folded,
    count(*) FILTER (WHERE judgement = 'ready') AS ready, count(*) FILTER (WHERE judgement = 'live') AS live,
    count(*) FILTER (WHERE judgement = 'recent') AS recent, count(*) FILTER (WHERE judgement = 'kin') AS kin,
    coalesce((SELECT sum(pg_total_relation_size(t.oid)) FROM pg_class t WHERE t.relnamespace = 'noetl'::regnamespace
        AND t.relkind = 'r' AND t.relname = ANY (ARRAY['event_' || p.name, 'command_' || p.name,
            'command_context_' || p.name, 'result_ref_' || p.name])), 0)::bigint AS bytes,
    (array_agg(j.execution_id::text ORDER BY j.execution_id)
        FILTER (WHERE judgement IN ('live', 'recent', 'kin')))[1:20] AS stragglers
FROM part p LEFT JOIN judged j ON j.name = p.name LEFT JOIN noetl.compaction c ON c.low = p.low
GROUP BY p.name, p.low, p.high, c.state
ORDER BY p.low
