-- name: read_cursor
-- Where the shard's routing stands, and under which epoch.
SELECT c.lease_epoch, c.seq, h.seq - c.seq AS waiting
FROM noetl.shard_cursor c JOIN noetl.shard_head h USING (shard_id)
WHERE c.shard_id = %(shard_id)s

-- name: read_inputs
-- The next inputs of a shard that no one has routed, in order.
SELECT execution_id, event_id, event_type, step, command_id, attempt, loop_epoch, iter_index, status, result, meta,
    dedup_key, catalog_id, parent_execution_id, worker_id, event_time
FROM noetl.event
WHERE shard_id = %(shard_id)s AND event_id > %(after)s AND (event_id & 32767) = 0
ORDER BY event_id
LIMIT %(limit)s

-- name: read_states
-- The routers' folds of these executions, exact up to the cursor; one not yet started has no row.
SELECT execution_id, state FROM noetl.execution_state WHERE execution_id = ANY(%(execution_ids)s)

-- name: read_playbook
-- One registered version.
SELECT catalog_id, version, content FROM noetl.catalog WHERE catalog_id = %(catalog_id)s

-- name: read_registered_playbook
-- A version of a path, or the newest, for a child to be started.
SELECT catalog_id, version, content
FROM noetl.catalog
WHERE path = %(path)s AND kind = 'Playbook' AND archived_at IS NULL
    AND (version = %(version)s::int OR %(version)s::int IS NULL)
ORDER BY version DESC
LIMIT 1

-- name: list_playbook_versions
-- The newest versions of a path, for the message about one that is not there.
SELECT version FROM noetl.catalog
WHERE path = %(path)s AND kind = 'Playbook' AND archived_at IS NULL
ORDER BY version DESC
LIMIT 10

-- name: move_cursor
-- Watermark, fence and exactly-once guard in one row: no row means that someone else routes this shard now.
UPDATE noetl.shard_cursor
SET seq = %(new_seq)s, updated_at = clock_timestamp()
WHERE shard_id = %(shard_id)s AND seq = %(old_seq)s AND lease_epoch = %(epoch)s
RETURNING seq

-- name: move_cursor_unfenced
-- The same without the guard: kept for the test that shows what it is for.
UPDATE noetl.shard_cursor
SET seq = %(new_seq)s, updated_at = clock_timestamp()
WHERE shard_id = %(shard_id)s
RETURNING seq

-- name: insert_children
-- The rows of sub-playbooks; a collision of the fresh id or of the parent command aborts the decision.
WITH given AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(children)s::json) AS c (execution_id bigint, shard_id smallint, catalog_id bigint,
        path text, version int, parent_execution_id bigint, parent_command_id bigint, group_id bigint, group_key text,
        run_limit int)
),
joined AS (
    INSERT INTO noetl.concurrency (execution_id, group_id, key, run_limit)
    SELECT execution_id, group_id, group_key, run_limit FROM given WHERE group_id IS NOT NULL
)
INSERT INTO noetl.execution (execution_id, shard_id, catalog_id, path, version, parent_execution_id, parent_command_id)
SELECT execution_id, shard_id, catalog_id, path, version, parent_execution_id, parent_command_id FROM given

-- name: insert_consequences
-- What routing drew from the batch's inputs, right behind each.
INSERT INTO noetl.event (execution_id, event_id, shard_id, event_type, step, command_id, attempt, loop_epoch, iter_index,
    status, result, meta, dedup_key, catalog_id, parent_execution_id, worker_id, event_time)
SELECT execution_id, event_id, %(shard_id)s, event_type, step, command_id, attempt, loop_epoch, iter_index,
    status, result, meta, dedup_key, coalesce(catalog_id, 0), parent_execution_id, worker_id,
    coalesce(event_time, clock_timestamp())
FROM json_to_recordset(%(events)s::json) AS e (execution_id bigint, event_id bigint, event_type text, step text,
    command_id bigint, attempt int, loop_epoch bigint, iter_index int, status text, result jsonb, meta jsonb,
    dedup_key text, catalog_id bigint, parent_execution_id bigint, worker_id text, event_time timestamptz)

-- name: insert_contexts
-- Contexts by digest: the same text may have been stored by an earlier decision.
INSERT INTO noetl.command_context (execution_id, context_id, body)
SELECT execution_id, context_id, body
FROM json_to_recordset(%(contexts)s::json) AS c (execution_id bigint, context_id bigint, body jsonb)
ON CONFLICT DO NOTHING

-- name: insert_commands
-- The queue's new rows; a retry delay becomes available_at.
INSERT INTO noetl.command (execution_id, command_id, shard_id, step, pool, priority, available_at, turn_at, loop_epoch,
    iter_index, item, context_id, issued_event_id)
SELECT execution_id, command_id, %(shard_id)s, step, coalesce(pool, 'default'), coalesce(priority, 0),
    clock_timestamp() + make_interval(secs => coalesce(delay_s, 0)),
    clock_timestamp() + make_interval(secs => coalesce(delay_s, 0) + coalesce(turn_s, 0)),
    coalesce(loop_epoch, 0), coalesce(iter_index, -1), item, context_id, issued_event_id
FROM json_to_recordset(%(commands)s::json) AS c (execution_id bigint, command_id bigint, step text, pool text,
    priority smallint, delay_s float8, turn_s float8, loop_epoch bigint, iter_index int, item jsonb, context_id bigint,
    issued_event_id bigint)

-- name: insert_timers
-- Wake-ups, counted from now by the database's clock.
INSERT INTO noetl.timer (execution_id, timer_id, shard_id, due_at, kind, cause_event_id)
SELECT execution_id, timer_id, %(shard_id)s, clock_timestamp() + make_interval(secs => due_s), kind, cause_event_id
FROM json_to_recordset(%(timers)s::json) AS t (execution_id bigint, timer_id bigint, due_s float8, kind text,
    cause_event_id bigint)

-- name: drop_timers
-- Runs that have ended need not be woken any more.
DELETE FROM noetl.timer WHERE execution_id = ANY(%(execution_ids)s)

-- name: upsert_states
-- The folds after the batch.
INSERT INTO noetl.execution_state (execution_id, shard_id, last_event_id, state)
SELECT execution_id, %(shard_id)s, last_event_id, state
FROM json_to_recordset(%(states)s::json) AS s (execution_id bigint, last_event_id bigint, state jsonb)
ON CONFLICT (execution_id) DO UPDATE SET last_event_id = EXCLUDED.last_event_id, state = EXCLUDED.state

-- name: cancel_commands
-- What is queued is cancelled and returned, what a worker holds is asked to stop.
WITH open AS (
    SELECT execution_id, command_id, status
    FROM noetl.command
    WHERE execution_id = ANY(%(execution_ids)s) AND status IN ('pending', 'claimed')
    ORDER BY execution_id, command_id
    FOR UPDATE
)
UPDATE noetl.command c
SET status = CASE open.status WHEN 'pending' THEN 'cancelled' ELSE c.status END,
    cancel_requested = true
FROM open
WHERE c.execution_id = open.execution_id AND c.command_id = open.command_id
RETURNING c.execution_id, c.command_id, c.step, c.loop_epoch, c.iter_index, open.status AS was

-- name: fire_timers
-- Take the due timers of a shard.
DELETE FROM noetl.timer t
USING (
    SELECT execution_id, timer_id FROM noetl.timer
    WHERE shard_id = %(shard_id)s AND due_at <= clock_timestamp()
    ORDER BY due_at
    LIMIT 500
    FOR UPDATE SKIP LOCKED
) due
WHERE t.execution_id = due.execution_id AND t.timer_id = due.timer_id
RETURNING t.execution_id, t.timer_id, t.kind, t.cause_event_id
