-- name: verify_executions
-- Runs of one shard.
INSERT INTO noetl.execution (execution_id, shard_id, catalog_id, path, version)
SELECT %(first)s::bigint + (g::bigint << 22), 0, 7, 'bench/verify', 1 FROM generate_series(0, %(runs)s::int - 1) AS g

-- name: verify_heads
-- The first input of each run with what was drawn from it, and what was drawn from the last report.
INSERT INTO noetl.event (execution_id, event_id, shard_id, event_type, step, loop_epoch, status, result, dedup_key,
    catalog_id, event_time)
SELECT %(first)s::bigint + (g::bigint << 22), ((g::bigint * (%(items)s::int + 1) + e.seq) << 15) | e.ord, 0, e.event_type,
    e.step, e.epoch, e.status, jsonb_build_object('status', e.status, 'context', e.context::jsonb), e.dedup_key, 7,
    clock_timestamp()
FROM generate_series(0, %(runs)s::int - 1) AS g, LATERAL (VALUES
    (1, 0, 'playbook.started', NULL, NULL, 'STARTED', 'start', '{"path": "bench/verify", "version": 1, "workload": {"v": {}}}'),
    (1, 1, 'step.enter', 'items', NULL, 'ENTERED', NULL, '{}'),
    (1, 2, 'loop.started', 'items', 77, 'STARTED', 'loop.started:77',
        '{"max_in_flight": 1000, "mode": "parallel", "size": ' || %(items)s::int || '}'),
    (%(items)s::int + 1, 1, 'loop.done', 'items', 77, 'COMPLETED', 'loop:77',
        '{"failed": 0, "size": ' || %(items)s::int || ', "done": ' || %(items)s::int || '}'),
    (%(items)s::int + 1, 2, 'step.exit', 'items', NULL, 'COMPLETED', NULL, '{"arcs": []}'),
    (%(items)s::int + 1, 3, 'playbook.completed', NULL, NULL, 'COMPLETED', 'end', '{}')
) AS e (seq, ord, event_type, step, epoch, status, dedup_key, context)

-- name: verify_items
-- Two events an item of each run's loop: its command is issued, and completes with a result.
INSERT INTO noetl.event (execution_id, event_id, shard_id, event_type, step, command_id, attempt, loop_epoch, iter_index,
    status, result, dedup_key, catalog_id, worker_id, event_time)
SELECT run, e.event_id, 0, e.event_type, 'items', command_id, e.attempt, 77, item, e.status,
    CASE WHEN e.attempt = 1 THEN jsonb_build_object('status', 'COMPLETED', 'reference', jsonb_build_object(
        'kind', 'result_ref', 'execution_id', run, 'ref_id', command_id, 'bytes', octet_length(body), 'label', 'items',
        'sha256', encode(sha256(body), 'hex'), 'ref', 'noetl://execution/' || run || '/result/items/' || command_id)) END,
    e.dedup_key || command_id, 7, CASE WHEN e.attempt = 1 THEN 'w' END, clock_timestamp()
FROM generate_series(0, %(runs)s::int - 1) AS g, generate_series(0, %(items)s::int - 1) AS item,
    LATERAL (SELECT %(first)s::bigint + (g::bigint << 22) AS run, g::bigint * 1000000 + item + 1 AS command_id) k,
    LATERAL (SELECT convert_to('{"id":' || command_id || ',"text":"a small result"}', 'UTF8') AS body) b,
    LATERAL (VALUES
        (((g::bigint * (%(items)s::int + 1) + 1) << 15) | (item + 3), 'command.issued', 'PENDING', NULL::int, 'issued:'),
        ((g::bigint * (%(items)s::int + 1) + 2 + item) << 15, 'command.completed', 'COMPLETED', 1, 'done:')
    ) AS e (event_id, event_type, status, attempt, dedup_key)

-- name: verify_commands
-- The commands of those items.
INSERT INTO noetl.command (execution_id, command_id, shard_id, step, status, attempt, worker_id, loop_epoch, iter_index,
    context_id, issued_event_id)
SELECT %(first)s::bigint + (g::bigint << 22), g::bigint * 1000000 + item + 1, 0, 'items', 'completed', 1, 'w', 77, item, 1, 1
FROM generate_series(0, %(runs)s::int - 1) AS g, generate_series(0, %(items)s::int - 1) AS item

-- name: verify_results
-- The results of those items, each in its row.
INSERT INTO noetl.result_ref (execution_id, ref_id, ref, step, loop_epoch, iter_index, store_tier, bytes, sha256,
    inline_payload)
SELECT run, ref_id, 'noetl://execution/' || run || '/result/items/' || ref_id, 'items', 77, item, 'db',
    octet_length(body), encode(sha256(body), 'hex'), body
FROM generate_series(0, %(runs)s::int - 1) AS g, generate_series(0, %(items)s::int - 1) AS item,
    LATERAL (SELECT %(first)s::bigint + (g::bigint << 22) AS run, g::bigint * 1000000 + item + 1 AS ref_id) k,
    LATERAL (SELECT convert_to('{"id":' || ref_id || ',"text":"a small result"}', 'UTF8') AS body) b

-- name: verify_settle
-- Say that all of it is routed, and whose the projection is.
WITH heads AS (UPDATE noetl.shard_head SET seq = %(runs)s::bigint * (%(items)s + 1) WHERE shard_id = 0),
    cursors AS (UPDATE noetl.shard_cursor SET seq = %(runs)s::bigint * (%(items)s + 1) WHERE shard_id = 0)
UPDATE noetl.projection_checkpoint SET lease_epoch = 1

-- name: verify_route
-- What the projection has folded is what the router would have.
INSERT INTO noetl.execution_state (execution_id, shard_id, last_event_id, state)
SELECT execution_id, 0, last_event_id, state FROM noetl.projection_state

-- name: verify_select
-- The bare read of the same rows.
SELECT e.* FROM noetl.event e ORDER BY e.execution_id, e.event_id
