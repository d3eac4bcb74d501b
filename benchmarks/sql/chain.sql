-- name: step_ends
-- Milliseconds from each step's end to the next one's, the first from the start of the run.
SELECT (extract(epoch FROM created_at - lag(created_at) OVER (ORDER BY event_id)) * 1000)::float8 AS gap_ms
FROM noetl.event
WHERE execution_id = %(execution_id)s AND event_type IN ('playbook.started', 'command.completed')
ORDER BY event_id OFFSET 1;
