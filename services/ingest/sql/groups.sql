-- name: lock_groups
-- Take the locks of these concurrency groups until commit, in their order: who admits or leaves next waits here.
SELECT pg_advisory_xact_lock(g.group_id)
FROM (SELECT DISTINCT unnest(%(groups)s::bigint[]) AS group_id ORDER BY group_id OFFSET 0) g

-- name: leave_groups
-- Give up the places of runs that have ended.
DELETE FROM noetl.concurrency WHERE execution_id = ANY(%(ended)s::bigint[])

-- name: admit_runs
-- Give free places to those who wait, first come first served: none overtakes one that its own limit still keeps out.
WITH held AS MATERIALIZED (
    SELECT g.group_id, (SELECT count(*) FROM noetl.concurrency c WHERE c.group_id = g.group_id AND c.is_admitted) AS places
    FROM (SELECT DISTINCT unnest(%(groups)s::bigint[]) AS group_id) g
),
admitted AS MATERIALIZED (
    SELECT w.execution_id FROM held h
    CROSS JOIN LATERAL (
        SELECT run_limit FROM noetl.concurrency WHERE group_id = h.group_id AND NOT is_admitted ORDER BY ticket LIMIT 1
    ) first
    CROSS JOIN LATERAL (
        SELECT n.execution_id, bool_and(h.places + n.place <= n.run_limit) OVER (ORDER BY n.place) AS has_room
        FROM (SELECT execution_id, run_limit, row_number() OVER (ORDER BY ticket) AS place
            FROM noetl.concurrency WHERE group_id = h.group_id AND NOT is_admitted ORDER BY ticket LIMIT %(max)s) n
    ) w
    WHERE first.run_limit > h.places AND w.has_room
)
UPDATE noetl.concurrency c SET is_admitted = true, admitted_at = clock_timestamp()
FROM admitted a WHERE c.execution_id = a.execution_id
RETURNING c.execution_id

-- name: read_waiting
-- What a run waits for, and how many of its group come before it; none when it does not wait.
SELECT w.key, w.run_limit, w.joined_at, (SELECT count(*) FROM (
    SELECT FROM noetl.concurrency c
    WHERE c.group_id = w.group_id AND NOT c.is_admitted AND c.ticket < w.ticket LIMIT %(counted_max)s) ahead) AS ahead
FROM noetl.concurrency w
WHERE w.execution_id = %(execution_id)s AND NOT w.is_admitted
