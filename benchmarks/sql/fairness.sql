-- name: database_time
-- The time by the database's clock.
SELECT clock_timestamp() AS now;

-- name: ended_between
-- How many runs completed in so many seconds from a moment on.
SELECT count(*) AS ended FROM noetl.event
WHERE dedup_key = 'end' AND event_type = 'playbook.completed'
    AND created_at BETWEEN %(from)s AND %(from)s::timestamptz + make_interval(secs => %(seconds)s);
