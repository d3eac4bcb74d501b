-- name: read_ranges
-- The ranges on their way out, oldest first.
SELECT low, high, suffix, state, executions,
    extract(epoch FROM clock_timestamp() - changed_at)::float8 AS age_s
FROM noetl.compaction WHERE state <> 'dropped' ORDER BY low

-- name: count_unfolded
-- How many executions of a range, or above those of it, are not folded yet, and the first of them by id.
WITH RECURSIVE above AS (
    SELECT x.execution_id, x.parent_execution_id, x.compacted_at FROM noetl.execution x
    WHERE x.execution_id >= %(low)s AND x.execution_id < %(high)s
        AND (x.compacted_at IS NULL OR x.parent_execution_id IS NOT NULL)
    UNION
    SELECT p.execution_id, p.parent_execution_id, p.compacted_at
    FROM above a JOIN noetl.execution p ON p.execution_id = a.parent_execution_id
)
SELECT count(*) AS unfolded, (array_agg(execution_id ORDER BY execution_id))[1:20] AS first
FROM above WHERE compacted_at IS NULL

-- name: begin_range
-- From here on the range is on its way out.
INSERT INTO noetl.compaction (low, high, suffix, executions)
SELECT %(low)s::bigint, %(high)s::bigint, %(suffix)s::text, count(*) FROM noetl.execution
WHERE execution_id >= %(low)s::bigint AND execution_id < %(high)s::bigint
ON CONFLICT (low) DO NOTHING

-- name: seal_range
-- Note a transaction id that is younger than every append that could not see that the executions are folded.
UPDATE noetl.compaction SET state = 'sealed', fence_xid = pg_current_xact_id(), changed_at = clock_timestamp()
WHERE low = %(low)s AND state = 'folded'

-- name: note_heads
-- Once those appends have ended: what must be routed and projected before the range may go.
UPDATE noetl.compaction
SET heads = (SELECT jsonb_object_agg(shard_id, seq) FROM noetl.shard_head)
WHERE low = %(low)s AND state = 'sealed' AND heads IS NULL
    AND pg_snapshot_xmin(pg_current_snapshot()) > fence_xid
    AND changed_at < clock_timestamp() - make_interval(secs => %(settle_s)s)
RETURNING low

-- name: leave_range
-- Go on to take the tables away, once all that was appended is routed and projected.
UPDATE noetl.compaction SET state = 'detaching', changed_at = clock_timestamp()
WHERE low = %(low)s AND state = 'sealed' AND heads IS NOT NULL AND NOT EXISTS (
    SELECT FROM noetl.shard_cursor c JOIN noetl.projection_checkpoint p USING (shard_id)
    WHERE (heads ->> c.shard_id::text)::bigint > 0 AND (c.seq < (heads ->> c.shard_id::text)::bigint
        OR p.last_projected_event_id < ((c.shard_id::bigint << 55) | ((heads ->> c.shard_id::text)::bigint << 15))))
RETURNING low

-- name: move_range
-- Take a range from one state to the next; no row means that another process did.
UPDATE noetl.compaction SET state = %(to)s, changed_at = clock_timestamp(), repaired = repaired + %(repaired)s
WHERE low = %(low)s AND state = %(from)s
RETURNING low

-- name: forget_range
-- Take a range back into use.
DELETE FROM noetl.compaction WHERE low = %(low)s AND state = ANY (ARRAY['folded', 'sealed', 'detaching', 'detached'])

-- name: find_tables
-- The tables of a range that exist, and how each hangs together with its parent.
SELECT parent, child.relname AS name,
    CASE WHEN i.inhrelid IS NULL THEN 'alone' WHEN i.inhdetachpending THEN 'pending' ELSE 'attached' END AS standing
FROM unnest(%(parents)s::text[]) AS parent
JOIN pg_class child ON child.relname = parent || '_' || %(suffix)s::text
    AND child.relnamespace = 'noetl'::regnamespace
LEFT JOIN pg_inherits i ON i.inhrelid = child.oid
ORDER BY array_position(%(parents)s::text[], parent)

-- name: find_late
-- Executions of detached tables that hold more than their manifest says.
WITH held AS (
    SELECT execution_id, sum(events) AS events, max(last) AS last, sum(results) AS results FROM (
        SELECT execution_id, count(*) AS events, max(event_id) AS last, 0::bigint AS results FROM {event}
        GROUP BY execution_id
        UNION ALL SELECT execution_id, 0, 0, count(*) FROM {result_ref} GROUP BY execution_id) t
    GROUP BY execution_id
)
SELECT h.execution_id, m.execution_id IS NULL AS is_unfolded
FROM held h LEFT JOIN noetl.manifest m USING (execution_id)
WHERE m.execution_id IS NULL OR h.events <> m.events OR h.last <> m.last_event_id OR h.results > m.results
ORDER BY h.execution_id

-- name: find_unfolded
-- Executions of a range that have no manifest: the range cannot go.
SELECT x.execution_id FROM noetl.execution x
WHERE x.execution_id >= %(low)s AND x.execution_id < %(high)s
    AND NOT EXISTS (SELECT FROM noetl.manifest m WHERE m.execution_id = x.execution_id)
ORDER BY x.execution_id LIMIT %(limit)s

-- name: drop_states
-- What else was kept of the range's executions.
WITH timers AS (DELETE FROM noetl.timer WHERE execution_id >= %(low)s AND execution_id < %(high)s),
    states AS (DELETE FROM noetl.execution_state WHERE execution_id >= %(low)s AND execution_id < %(high)s),
    projections AS (DELETE FROM noetl.projection_state WHERE execution_id >= %(low)s AND execution_id < %(high)s)
DELETE FROM noetl.dead_letter WHERE execution_id >= %(low)s AND execution_id < %(high)s

-- name: limit_waits
-- Give up a lock that is not to be had at once: whoever stands behind in its queue waits as long.
SELECT set_config('lock_timeout', %(lock_timeout)s, false), set_config('statement_timeout', %(statement_timeout)s, false)

-- name: reset_waits
-- Wait again as all sessions of this process do.
SELECT set_config(name, reset_val, false) FROM pg_settings WHERE name IN ('lock_timeout', 'statement_timeout')

-- name: detach_table
-- Take a table out of the log without a lock that an append waits for.
ALTER TABLE noetl.{parent} DETACH PARTITION noetl.{name} CONCURRENTLY

-- name: finalize_table
-- Finish a detach that was interrupted.
ALTER TABLE noetl.{parent} DETACH PARTITION noetl.{name} FINALIZE

-- name: attach_table
-- Put a table back into the log; its bounds stand as a constraint since it left.
ALTER TABLE noetl.{parent} ATTACH PARTITION noetl.{name} FOR VALUES FROM ({low}) TO ({high})

-- name: drop_table
-- Drop a table that is no part of the log any more.
DROP TABLE IF EXISTS noetl.{name}

-- name: count_ranges
-- How many ranges are on their way out.
SELECT count(*) FILTER (WHERE state <> 'dropped') AS leaving, count(*) FILTER (WHERE state = 'dropped') AS dropped
FROM noetl.compaction
