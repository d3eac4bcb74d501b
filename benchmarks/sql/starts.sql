-- name: ended_runs
-- Which of these runs have ended.
SELECT execution_id FROM noetl.event WHERE execution_id = ANY(%(execution_ids)s) AND dedup_key = 'end';

-- name: run_latencies
-- Milliseconds from each run's start to the beginning of its first command, as the worker tells it, and to its end.
SELECT (extract(epoch FROM min(event_time) FILTER (WHERE event_type = 'command.completed')
        - min(created_at) FILTER (WHERE dedup_key = 'start')) * 1000
        - min((meta ->> 'duration_ms')::float8) FILTER (WHERE event_type = 'command.completed'))::float8 AS claimed_ms,
    (extract(epoch FROM max(created_at) FILTER (WHERE dedup_key = 'end')
        - min(created_at) FILTER (WHERE dedup_key = 'start')) * 1000)::float8 AS done_ms
FROM noetl.event WHERE execution_id = ANY(%(execution_ids)s)
GROUP BY execution_id HAVING bool_or(event_type = 'playbook.completed');
