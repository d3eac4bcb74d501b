-- name: drop_dead_runtimes
-- Forget processes that have shown no sign of life for long.
DELETE FROM noetl.runtime WHERE heartbeat < clock_timestamp() - make_interval(secs => %(dead_s)s)

-- name: drop_old_checkpoints
-- Drop each shard's oldest checkpoints beyond their keeping time, some at once.
DELETE FROM noetl.checkpoint k
USING noetl.shard_cursor c, LATERAL (SELECT o.checkpoint_id, o.committed_at FROM noetl.checkpoint o
    WHERE o.shard_id = c.shard_id ORDER BY o.checkpoint_id LIMIT %(limit)s) oldest
WHERE k.shard_id = c.shard_id AND k.checkpoint_id = oldest.checkpoint_id
    AND oldest.committed_at < clock_timestamp() - make_interval(hours => %(keep_hours)s)

-- name: count_dead_letters
-- Count what was given up.
SELECT count(*) AS depth FROM noetl.dead_letter

-- name: ping
-- Ask whether the database answers.
SELECT 1
