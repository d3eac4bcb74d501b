-- name: commit_at_once
-- Append inputs to shards that we own and write what they lead to: all of it, or nothing and is_open false. The gate is
-- open while cursors, heads and claims are as the decisions took them to be, and nobody else is at them: a row that is
-- locked counts as one that has changed, so this never waits for anyone who numbers, routes or claims (for one who
-- inserts the same key it does). is_busy: nothing has changed but that someone else is at the claims, to renew their
-- leases as a rule.
WITH shards AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(shards)s::json) AS s (
        shard_id smallint, epoch bigint, old_seq bigint, new_seq bigint)
),
reports AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(reports)s::json) AS r (execution_id bigint, command_id bigint, claim_token bigint,
        status text, step text, attempt int, loop_epoch bigint, iter_index int)
),
cursors AS MATERIALIZED (
    SELECT c.shard_id FROM shards s CROSS JOIN LATERAL (
        SELECT shard_id FROM noetl.shard_cursor
        WHERE shard_id = s.shard_id AND seq = s.old_seq AND lease_epoch = s.epoch
        FOR NO KEY UPDATE SKIP LOCKED) c
),
heads AS MATERIALIZED (
    SELECT h.shard_id FROM shards s CROSS JOIN LATERAL (
        SELECT shard_id FROM noetl.shard_head
        WHERE shard_id = s.shard_id AND seq = s.old_seq
        FOR NO KEY UPDATE SKIP LOCKED) h
),
claims AS MATERIALIZED (
    SELECT c.command_id FROM reports r CROSS JOIN LATERAL (
        SELECT command_id FROM noetl.command
        WHERE execution_id = r.execution_id AND command_id = r.command_id
            AND status = 'claimed' AND claim_token = r.claim_token
            AND step = r.step AND attempt = r.attempt AND loop_epoch = r.loop_epoch AND iter_index = r.iter_index
        FOR NO KEY UPDATE SKIP LOCKED) c
),
gate AS MATERIALIZED (
    SELECT (SELECT count(*) FROM cursors) = (SELECT count(*) FROM shards)
        AND (SELECT count(*) FROM heads) = (SELECT count(*) FROM shards)
        AND (SELECT count(*) FROM claims) = (SELECT count(*) FROM reports) AS is_open
),
moved_cursors AS (
    UPDATE noetl.shard_cursor c SET seq = s.new_seq, updated_at = clock_timestamp()
    FROM shards s, gate WHERE gate.is_open AND c.shard_id = s.shard_id
),
moved_heads AS (
    UPDATE noetl.shard_head h SET seq = s.new_seq
    FROM shards s, gate WHERE gate.is_open AND h.shard_id = s.shard_id
),
finished AS (
    UPDATE noetl.command c SET status = r.status, lease_until = NULL
    FROM reports r, gate
    WHERE gate.is_open AND r.status IS NOT NULL
        AND c.execution_id = r.execution_id AND c.command_id = r.command_id
),
created AS (
    INSERT INTO noetl.execution (execution_id, shard_id, catalog_id, path, version, parent_execution_id, idempotency_key)
    SELECT x.* FROM gate, json_to_recordset(%(executions)s::json) AS x (execution_id bigint, shard_id smallint,
        catalog_id bigint, path text, version int, parent_execution_id bigint, idempotency_key text)
    WHERE gate.is_open
),
appended AS (
    INSERT INTO noetl.event (execution_id, event_id, shard_id, event_type, step, command_id, attempt, loop_epoch,
        iter_index, status, result, meta, dedup_key, catalog_id, parent_execution_id, worker_id, event_time)
    SELECT e.execution_id, e.event_id, e.event_id >> 55, e.event_type, e.step, e.command_id, e.attempt, e.loop_epoch,
        e.iter_index, e.status, e.result, e.meta, e.dedup_key, e.catalog_id, e.parent_execution_id, e.worker_id,
        e.event_time
    FROM gate, json_to_recordset(%(events)s::json) AS e (execution_id bigint, event_id bigint, event_type text, step text,
        command_id bigint, attempt int, loop_epoch bigint, iter_index int, status text, result jsonb, meta jsonb,
        dedup_key text, catalog_id bigint, parent_execution_id bigint, worker_id text, event_time timestamptz)
    WHERE gate.is_open
),
results AS (
    INSERT INTO noetl.result_ref (execution_id, ref_id, ref, step, task_label, shape, loop_epoch, iter_index,
        parent_ref_id, store_tier, physical_uri, content_type, bytes, sha256, compression, rows, preview, extracted,
        inline_payload)
    SELECT g.execution_id, g.ref_id, g.ref, g.step, g.task_label, g.shape, g.loop_epoch, g.iter_index, g.parent_ref_id,
        g.store_tier, g.physical_uri, g.content_type, g.bytes, g.sha256, g.compression, g.rows, g.preview, g.extracted,
        convert_to(g.inline, 'UTF8')
    FROM gate, json_to_recordset(%(results)s::json) AS g (
        execution_id bigint, ref_id bigint, ref text, step text, task_label text, shape text, loop_epoch bigint,
        iter_index int, parent_ref_id bigint, store_tier text, physical_uri text, content_type text, bytes bigint,
        sha256 text, compression text, rows bigint, preview jsonb, extracted jsonb, inline text)
    WHERE gate.is_open
    ON CONFLICT (execution_id, ref_id) DO NOTHING
),
contexts AS (
    INSERT INTO noetl.command_context (execution_id, context_id, body)
    SELECT c.* FROM gate, json_to_recordset(%(contexts)s::json) AS c (
        execution_id bigint, context_id bigint, body jsonb)
    WHERE gate.is_open
    ON CONFLICT DO NOTHING
),
issued AS (
    INSERT INTO noetl.command (execution_id, command_id, shard_id, step, pool, priority, available_at, turn_at,
        loop_epoch, iter_index, item, context_id, issued_event_id, status, attempt, worker_id, claim_token, lease_until)
    SELECT c.execution_id, c.command_id, c.issued_event_id >> 55, c.step, coalesce(c.pool, 'default'),
        coalesce(c.priority, 0),
        clock_timestamp() + make_interval(secs => coalesce(c.delay_s, 0)),
        clock_timestamp() + make_interval(secs => coalesce(c.delay_s, 0) + coalesce(c.turn_s, 0)),
        coalesce(c.loop_epoch, 0), coalesce(c.iter_index, -1), c.item, c.context_id, c.issued_event_id,
        CASE WHEN c.worker_id IS NULL THEN 'pending' ELSE 'claimed' END,
        CASE WHEN c.worker_id IS NULL THEN 0 ELSE 1 END,
        c.worker_id,
        CASE WHEN c.worker_id IS NOT NULL THEN nextval('noetl.claim_token') END,
        CASE WHEN c.worker_id IS NOT NULL THEN clock_timestamp() + make_interval(secs => %(lease_s)s) END
    FROM gate, json_to_recordset(%(commands)s::json) AS c (execution_id bigint, command_id bigint, step text, pool text,
        priority smallint, delay_s float8, turn_s float8, loop_epoch bigint, iter_index int, item jsonb,
        context_id bigint, issued_event_id bigint, worker_id text)
    WHERE gate.is_open
    RETURNING command_id, claim_token
),
states AS (
    INSERT INTO noetl.execution_state (execution_id, shard_id, last_event_id, state)
    SELECT s.execution_id, s.last_event_id >> 55, s.last_event_id, s.state
    FROM gate, json_to_recordset(%(states)s::json) AS s (execution_id bigint, last_event_id bigint, state jsonb)
    WHERE gate.is_open
    ON CONFLICT (execution_id) DO UPDATE SET last_event_id = EXCLUDED.last_event_id, state = EXCLUDED.state
),
woken AS (
    INSERT INTO noetl.timer (execution_id, timer_id, shard_id, due_at, kind, cause_event_id)
    SELECT t.execution_id, t.timer_id, t.cause_event_id >> 55, clock_timestamp() + make_interval(secs => t.due_s), t.kind,
        t.cause_event_id
    FROM gate, json_to_recordset(%(timers)s::json) AS t (execution_id bigint, timer_id bigint, due_s float8, kind text,
        cause_event_id bigint)
    WHERE gate.is_open AND NOT t.execution_id = ANY(%(ended)s::bigint[])
),
forgotten AS (
    DELETE FROM noetl.timer t USING gate
    WHERE gate.is_open AND t.execution_id = ANY(%(ended)s::bigint[])
)
SELECT gate.is_open,
    CASE WHEN NOT gate.is_open THEN
        (SELECT count(*) FROM cursors) = (SELECT count(*) FROM shards)
        AND (SELECT count(*) FROM heads) = (SELECT count(*) FROM shards)
        AND (SELECT count(*) FROM reports r JOIN noetl.command c
            ON c.execution_id = r.execution_id AND c.command_id = r.command_id
            AND c.status = 'claimed' AND c.claim_token = r.claim_token
            AND c.step = r.step AND c.attempt = r.attempt AND c.loop_epoch = r.loop_epoch AND c.iter_index = r.iter_index
        ) = (SELECT count(*) FROM reports)
    ELSE false END AS is_busy,
    (SELECT jsonb_object_agg(command_id, claim_token) FROM issued WHERE claim_token IS NOT NULL) AS tokens
FROM gate
