-- name: terminal_event
-- The one event that ended a run, if it has ended.
SELECT event_type, result -> 'error' AS error
FROM noetl.event WHERE execution_id = %(execution_id)s AND dedup_key = 'end';

-- name: wall_time
-- Seconds from the start of a run to its end, by the log.
SELECT extract(epoch FROM
    max(created_at) FILTER (WHERE dedup_key = 'end') - min(created_at) FILTER (WHERE dedup_key = 'start'))::float8 AS wall_s
FROM noetl.event WHERE execution_id = %(execution_id)s AND dedup_key IN ('start', 'end');

-- name: step_latency
-- Milliseconds from the issue of a command to its accepted report, over all items.
SELECT count(*) AS items,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY taken.ms)::float8 AS p50,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY taken.ms)::float8 AS p99
FROM (
    SELECT extract(epoch FROM max(created_at) FILTER (WHERE event_type = 'command.completed')
        - max(created_at) FILTER (WHERE event_type = 'command.issued')) * 1000 AS ms
    FROM noetl.event
    WHERE execution_id = %(execution_id)s AND iter_index >= 0
    GROUP BY command_id
    HAVING count(*) FILTER (WHERE event_type = 'command.completed') = 1
) taken;

-- name: row_operations
-- Rows inserted and updated so far, by table; partitions count for their table.
SELECT regexp_replace(relname, '_p?[0-9]+(_[0-9]+)*$', '') AS name, sum(n_tup_ins)::bigint AS inserted,
    sum(n_tup_upd)::bigint AS updated
FROM pg_stat_user_tables WHERE schemaname = 'noetl' GROUP BY 1 ORDER BY 1;
