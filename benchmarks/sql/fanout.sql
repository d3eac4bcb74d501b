-- name: terminal_event
-- The one event that ended a run, if it has ended.
SELECT event_type, result -> 'error' AS error
FROM noetl.event WHERE execution_id = %(execution_id)s AND dedup_key = 'end';

-- name: wall_time
-- Seconds from the start of a run to its end, by the log, and its events.
SELECT extract(epoch FROM
    max(created_at) FILTER (WHERE dedup_key = 'end') - min(created_at) FILTER (WHERE dedup_key = 'start'))::float8 AS wall_s,
    count(*) AS events, count(*) FILTER (WHERE event_type = 'loop.done') AS loops_done
FROM noetl.event WHERE execution_id = %(execution_id)s;

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

-- name: is_settled
-- Whether all that is in the log is routed and projected: an event's number stands between its shard and its place.
SELECT NOT EXISTS (
    SELECT FROM noetl.shard_head h JOIN noetl.shard_cursor c USING (shard_id) JOIN noetl.projection_checkpoint p USING (shard_id)
    WHERE c.seq < h.seq OR (p.last_projected_event_id >> 15) & ((1::bigint << 40) - 1) < c.seq
) AS settled;
