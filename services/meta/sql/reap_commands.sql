-- name: shards_with_expired
-- Name the shards in which a command's lease has run out.
SELECT DISTINCT shard_id FROM (
    SELECT shard_id FROM noetl.command
    WHERE status = 'claimed' AND lease_until < clock_timestamp() ORDER BY lease_until LIMIT %(limit)s) expired
ORDER BY shard_id

-- name: lock_expired
-- Lock a shard's expired commands in key order; one that a report is finishing right now is left alone.
SELECT execution_id, command_id, step, pool, attempt, crash_count, cancel_requested, worker_id, loop_epoch, iter_index
FROM noetl.command
WHERE shard_id = %(shard_id)s AND status = 'claimed' AND lease_until < clock_timestamp()
    AND EXISTS (SELECT FROM noetl.execution_shard l WHERE l.role = 'meta' AND l.shard_id = 0
        AND l.owner_instance = %(leader)s AND l.epoch = %(leader_epoch)s)
ORDER BY execution_id, command_id LIMIT %(limit)s
FOR UPDATE SKIP LOCKED

-- name: reissue_commands
-- Put commands back in the queue; the old claim's token is void.
UPDATE noetl.command c
SET status = 'pending', claim_token = NULL, worker_id = NULL, lease_until = NULL, crash_count = c.crash_count + 1,
    available_at = clock_timestamp() + make_interval(secs => g.delay_s),
    turn_at = clock_timestamp() + make_interval(secs => g.delay_s)
FROM json_to_recordset(%(commands)s::json) AS g (execution_id bigint, command_id bigint, delay_s float8)
WHERE c.execution_id = g.execution_id AND c.command_id = g.command_id

-- name: end_commands
-- Close commands that no worker will finish.
UPDATE noetl.command c
SET status = g.status, claim_token = NULL, lease_until = NULL, crash_count = c.crash_count + 1
FROM json_to_recordset(%(commands)s::json) AS g (execution_id bigint, command_id bigint, status text)
WHERE c.execution_id = g.execution_id AND c.command_id = g.command_id

-- name: bury_commands
-- Keep what was given up, with why.
INSERT INTO noetl.dead_letter (execution_id, command_id, step, reason, detail)
SELECT g.execution_id, g.command_id, g.step, 'POISON', g.detail
FROM json_to_recordset(%(commands)s::json) AS g (execution_id bigint, command_id bigint, step text, detail jsonb)
ON CONFLICT (execution_id, command_id) DO NOTHING
