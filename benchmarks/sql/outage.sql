-- name: items_done
-- How many items of a run's loop are done.
SELECT count(*) AS done FROM noetl.event
WHERE execution_id = %(execution_id)s AND event_type = 'command.completed';

-- name: fast_again
-- Seconds from a moment to the end of the first window in which enough items ended.
SELECT round(((n + 1) * %(window_ms)s / 1000.0)::numeric, 2)::float8 AS after_s
FROM (
    SELECT floor(extract(epoch FROM created_at - %(from)s::timestamptz) * 1000 / %(window_ms)s)::int AS n
    FROM noetl.event
    WHERE execution_id = %(execution_id)s AND event_type = 'command.completed' AND created_at >= %(from)s
) ended
GROUP BY n HAVING count(*) >= %(wanted)s ORDER BY n LIMIT 1;
