-- name: list_executions
-- Runs, newest first: for each status the first of its page by the index of what the list is `by`, then the page of all.
-- No more is read than a page and what stands before it, once a status. A status is bounded from both sides and ordered
-- by, not equated: else the planner walks all runs by primary key where it believes the status to be common.
WITH page AS (
    SELECT found.execution_id
    FROM unnest(%(statuses)s::text[]) AS wanted (status)
    CROSS JOIN LATERAL (
        (SELECT x.execution_id FROM noetl.execution x
        WHERE %(by)s::text = 'status' AND (x.status, x.execution_id) < (wanted.status, %(before)s::bigint)
            AND x.status >= wanted.status
        ORDER BY x.status DESC, x.execution_id DESC LIMIT %(limit)s::bigint + %(offset)s::bigint)
        UNION ALL
        (SELECT x.execution_id FROM noetl.execution x
        WHERE %(by)s::text = 'path' AND x.path = %(path)s::text
            AND (x.path, x.status, x.execution_id) < (%(path)s::text, wanted.status, %(before)s::bigint)
            AND x.status >= wanted.status
        ORDER BY x.status DESC, x.execution_id DESC LIMIT %(limit)s::bigint + %(offset)s::bigint)
        UNION ALL
        (SELECT x.execution_id FROM noetl.execution x
        WHERE %(by)s::text = 'catalog_id' AND x.catalog_id = %(catalog_id)s::bigint
            AND (x.catalog_id, x.status, x.execution_id) < (%(catalog_id)s::bigint, wanted.status, %(before)s::bigint)
            AND x.status >= wanted.status
            AND (%(path)s::text IS NULL OR EXISTS (SELECT FROM noetl.catalog c
                WHERE c.catalog_id = %(catalog_id)s::bigint AND c.path = %(path)s::text))
        ORDER BY x.status DESC, x.execution_id DESC LIMIT %(limit)s::bigint + %(offset)s::bigint)
        UNION ALL
        (SELECT x.execution_id FROM noetl.execution x
        WHERE %(by)s::text = 'parent' AND x.parent_execution_id = %(parent)s::bigint
            AND (x.parent_execution_id, x.status, x.execution_id)
                < (%(parent)s::bigint, wanted.status, %(before)s::bigint)
            AND x.status >= wanted.status
        ORDER BY x.status DESC, x.execution_id DESC LIMIT %(limit)s::bigint + %(offset)s::bigint)
    ) found
    ORDER BY found.execution_id DESC
    LIMIT %(limit)s::bigint OFFSET %(offset)s::bigint
)
SELECT x.execution_id, x.catalog_id, x.path, x.version, x.status, x.start_time, x.end_time, x.progress, x.result,
    x.error, x.parent_execution_id, x.current_step
FROM page JOIN noetl.execution x ON x.execution_id = page.execution_id
ORDER BY x.execution_id DESC

-- name: read_execution
-- One run as projected, and how far its shard is: what waits is behind the head. Read models only, never the log.
SELECT x.execution_id, x.shard_id, x.catalog_id, x.path, x.version, x.status, x.start_time, x.end_time, x.progress,
    x.result, x.error, x.parent_execution_id, x.current_step, x.last_event_id, x.compacted_at,
    coalesce(p.last_projected_event_id, 0) AS as_of_event_id,
    coalesce(p.last_projected_event_id < ((h.shard_id::bigint << 55) | (h.seq << 15) | 32767), false) AS is_behind,
    coalesce(p.lag_ms, 0) AS lag_ms, p.last_projected_at, clock_timestamp() AS now
FROM noetl.execution x
LEFT JOIN noetl.projection_checkpoint p ON p.shard_id = x.shard_id
LEFT JOIN noetl.shard_head h ON h.shard_id = x.shard_id
WHERE x.execution_id = %(execution_id)s

-- name: read_oldest_waiting
-- When the first event of a shard that is not projected was written.
SELECT e.created_at FROM noetl.event e WHERE e.shard_id = %(shard_id)s AND e.event_id > %(after)s
ORDER BY e.event_id LIMIT 1

-- name: read_standing
-- Whether a run exists and has ended, by the router's state or else the projection.
SELECT x.execution_id, x.shard_id, x.path, x.compacted_at,
    CASE WHEN x.status <> 'RUNNING' THEN x.status ELSE coalesce(s.state ->> 'status', x.status) END AS status,
    s.state ->> 'cancelling' AS cancelling, coalesce((x.progress #>> '{counts,events}')::bigint, 0) AS events_projected
FROM noetl.execution x
LEFT JOIN noetl.execution_state s ON s.execution_id = x.execution_id
WHERE x.execution_id = %(execution_id)s

-- name: list_live_family
-- A run and those of its descendants that have not ended.
WITH RECURSIVE family AS (
    SELECT execution_id, status FROM noetl.execution WHERE execution_id = %(execution_id)s
    UNION
    SELECT x.execution_id, x.status FROM noetl.execution x JOIN family f ON x.parent_execution_id = f.execution_id
)
SELECT execution_id FROM family WHERE status = 'RUNNING' ORDER BY execution_id LIMIT %(limit)s

-- name: read_start_input
-- What a run was started with, by its manifest if it is folded, else by the log.
SELECT CASE WHEN m.workload IS NULL THEN '{"context": {}}'::jsonb
    ELSE jsonb_build_object('context', jsonb_build_object('workload', m.workload)) END AS result
FROM noetl.manifest m WHERE m.execution_id = %(execution_id)s
UNION ALL
SELECT result FROM noetl.event WHERE execution_id = %(execution_id)s AND dedup_key = 'start'
    AND NOT EXISTS (SELECT FROM noetl.manifest m WHERE m.execution_id = %(execution_id)s)

-- name: count_events
-- Of the first events of a run behind one, within its shard's routed prefix: how many, how many of a type, which is last.
SELECT count(*) AS looked_at, count(*) FILTER (WHERE %(event_type)s::text IS NULL OR w.event_type = %(event_type)s::text)
    AS matching, max(w.event_id) AS last_event_id
FROM (
    SELECT e.event_id, e.event_type
    FROM noetl.event e
    WHERE e.execution_id = %(execution_id)s AND e.event_id > %(since)s AND e.event_id <= (
        SELECT (c.shard_id::bigint << 55) | (c.seq << 15) | 32767
        FROM noetl.execution x JOIN noetl.shard_cursor c ON c.shard_id = x.shard_id
        WHERE x.execution_id = %(execution_id)s)
    ORDER BY e.event_id LIMIT %(looked_at_max)s::bigint
) w

-- name: read_events
-- A page of a run's events, oldest first, within its shard's routed prefix: what is shown never changes.
-- Those of one type are looked for among so many of all.
SELECT w.* FROM (
    SELECT e.execution_id, e.event_id, e.event_type, e.step, e.command_id, e.attempt, e.loop_epoch, e.iter_index,
        e.status, e.result, e.meta, e.catalog_id, e.parent_execution_id, e.worker_id, e.event_time, e.created_at
    FROM noetl.event e
    WHERE e.execution_id = %(execution_id)s AND e.event_id > %(since)s AND e.event_id <= (
        SELECT (c.shard_id::bigint << 55) | (c.seq << 15) | 32767
        FROM noetl.execution x JOIN noetl.shard_cursor c ON c.shard_id = x.shard_id
        WHERE x.execution_id = %(execution_id)s)
    ORDER BY e.event_id LIMIT %(looked_at_max)s::bigint
) w
WHERE %(event_type)s::text IS NULL OR w.event_type = %(event_type)s::text
ORDER BY w.event_id
LIMIT %(limit)s OFFSET %(offset)s

-- name: read_leases
-- Who claimed these commands last.
SELECT command_id, worker_id, attempt, status FROM noetl.command
WHERE execution_id = %(execution_id)s AND command_id = ANY(%(command_ids)s::bigint[]) AND attempt > 0

-- name: find_event
-- One event by its id.
SELECT execution_id, created_at FROM noetl.event WHERE shard_id = %(shard_id)s AND event_id = %(event_id)s

-- name: list_stalled
-- Runs without an event for so long, which no worker holds a command of and no timer will wake. A run above one that
-- moves moves with it.
WITH RECURSIVE moving AS (
    SELECT x.execution_id, x.parent_execution_id FROM noetl.execution x
    WHERE x.status = 'RUNNING' AND (
        greatest(x.start_time, x.updated_at) >= clock_timestamp() - make_interval(mins => %(minutes)s)
        OR EXISTS (SELECT FROM noetl.event e WHERE e.execution_id = x.execution_id
            AND e.created_at >= clock_timestamp() - make_interval(mins => %(minutes)s))
        OR EXISTS (SELECT FROM noetl.command c WHERE c.execution_id = x.execution_id
            AND c.status = 'claimed' AND c.lease_until > clock_timestamp())
        OR EXISTS (SELECT FROM noetl.concurrency g WHERE g.execution_id = x.execution_id AND NOT g.is_admitted)
        OR EXISTS (SELECT FROM noetl.timer t WHERE t.execution_id = x.execution_id AND t.kind <> 'timeout'))
    UNION
    SELECT p.execution_id, p.parent_execution_id FROM noetl.execution p JOIN moving m
        ON p.execution_id = m.parent_execution_id
)
SELECT x.execution_id FROM noetl.execution x
WHERE x.status = 'RUNNING' AND NOT EXISTS (SELECT FROM moving m WHERE m.execution_id = x.execution_id)
ORDER BY x.execution_id
LIMIT %(limit)s
