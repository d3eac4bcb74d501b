-- name: look_at_shards
-- Which owned shards have inputs that no one has routed, or timers that are due; and when the next timer is.
SELECT c.shard_id, h.seq > c.seq AS is_behind,
    (SELECT extract(epoch FROM min(t.due_at) - clock_timestamp())::float8
        FROM noetl.timer t WHERE t.shard_id = c.shard_id) AS due_in_s
FROM noetl.shard_cursor c JOIN noetl.shard_head h USING (shard_id)
WHERE c.shard_id = ANY(%(shard_ids)s)
