-- name: own_shards
-- Give every shard of the compactor to one process.
WITH owned AS (
    UPDATE noetl.execution_shard SET owner_instance = %(instance)s, epoch = 1,
        leased_until = clock_timestamp() + interval '1 hour'
    WHERE role = 'compactor'
)
UPDATE noetl.compaction_cursor SET lease_epoch = 1

-- name: seed_executions
-- Finished runs of one shard, two months old.
INSERT INTO noetl.execution (execution_id, shard_id, catalog_id, path, version, status, end_time, start_time)
SELECT %(first)s::bigint + (g::bigint << 22), 0, 7, 'bench/compact', 1, 'COMPLETED', clock_timestamp() - interval '59 days',
    clock_timestamp() - interval '60 days'
FROM generate_series(0, %(runs)s::int - 1) AS g

-- name: seed_starts
-- The first and the last event of each run.
INSERT INTO noetl.event (execution_id, event_id, shard_id, event_type, step, status, result, dedup_key, catalog_id,
    event_time)
SELECT %(first)s::bigint + (g::bigint << 22), ((g::bigint * 1000 + e.seq)::bigint << 15) | 1, 0, e.event_type, NULL, e.status,
    e.result::jsonb, e.dedup_key, 7, clock_timestamp() - interval '60 days'
FROM generate_series(1, %(runs)s::int) AS n, LATERAL (SELECT n - 1 AS g) r, LATERAL (VALUES
    (1, 'playbook.started', 'STARTED', 'start', '{"status": "STARTED", "context": {"workload": {"v": {"n": 1}}}}'),
    (999, 'playbook.completed', 'COMPLETED', 'end', '{"status": "COMPLETED"}')
) AS e (seq, event_type, status, dedup_key, result)

-- name: seed_items
-- Two events an item of each run's loop: its command is issued, and completes with a result.
INSERT INTO noetl.event (execution_id, event_id, shard_id, event_type, step, command_id, attempt, loop_epoch, iter_index,
    status, result, meta, dedup_key, catalog_id, worker_id, event_time)
SELECT run, ((g::bigint * 1000 + 2 + item)::bigint << 15) | e.ord, 0, e.event_type, 'items', command_id, e.attempt, 77, item,
    e.status, CASE WHEN e.ord = 0 THEN jsonb_build_object('status', 'COMPLETED', 'reference', jsonb_build_object(
        'kind', 'result_ref', 'execution_id', run, 'ref_id', command_id, 'bytes', 40, 'tier', 'db', 'label', 'items',
        'sha256', repeat('0', 64), 'ref', 'noetl://execution/' || run || '/result/items/' || command_id)) END,
    NULL, e.event_type || ':' || command_id, 7, e.worker_id, clock_timestamp() - interval '60 days'
FROM generate_series(0, %(runs)s::int - 1) AS g, generate_series(0, %(items)s::int - 1) AS item,
    LATERAL (SELECT %(first)s::bigint + (g::bigint << 22) AS run, g::bigint * 1000 + item + 1 AS command_id) k,
    LATERAL (VALUES (1, 'command.issued', 'PENDING', NULL::int, NULL::text), (0, 'command.completed', 'COMPLETED', 1, 'w'))
        AS e (ord, event_type, status, attempt, worker_id)

-- name: seed_commands
-- The commands of those items.
INSERT INTO noetl.command (execution_id, command_id, shard_id, step, status, attempt, worker_id, loop_epoch, iter_index,
    context_id, issued_event_id)
SELECT %(first)s::bigint + (g::bigint << 22), g::bigint * 1000 + item + 1, 0, 'items', 'completed', 1, 'w', 77, item, 1, 1
FROM generate_series(0, %(runs)s::int - 1) AS g, generate_series(0, %(items)s::int - 1) AS item

-- name: seed_results
-- The results of those items, each in its row.
INSERT INTO noetl.result_ref (execution_id, ref_id, ref, step, loop_epoch, iter_index, store_tier, bytes, sha256,
    inline_payload)
SELECT run, ref_id, 'noetl://execution/' || run || '/result/items/' || ref_id, 'items', 77, item, 'db', 40,
    repeat('0', 64), convert_to('{"id": ' || ref_id || ', "text": "a small result"}', 'UTF8')
FROM generate_series(0, %(runs)s::int - 1) AS g, generate_series(0, %(items)s::int - 1) AS item,
    LATERAL (SELECT %(first)s::bigint + (g::bigint << 22) AS run, g::bigint * 1000 + item + 1 AS ref_id) k

-- name: seed_chain
-- A run whose results were each made from the one before.
INSERT INTO noetl.result_ref (execution_id, ref_id, ref, step, parent_ref_id, store_tier, bytes, sha256)
SELECT %(run)s::bigint, 1000000000 + n, 'noetl://execution/0/result/s' || n || '/' || n, 's' || n,
    CASE WHEN n > 1 THEN 1000000000 + n - 1 END, 'db', 40, repeat('0', 64)
FROM generate_series(1, %(depth)s::int) AS n

-- name: settle
-- Say that all of it is routed and projected.
WITH heads AS (UPDATE noetl.shard_head SET seq = 1000000000 WHERE shard_id = 0),
    cursors AS (UPDATE noetl.shard_cursor SET seq = 1000000000 WHERE shard_id = 0)
UPDATE noetl.projection_checkpoint SET last_projected_event_id = (1000000000::bigint << 15) | 32767 WHERE shard_id = 0

-- name: analyze_tables
-- Look at the tables as autovacuum would have long ago.
VACUUM ANALYZE noetl.event, noetl.command, noetl.result_ref, noetl.execution

-- name: select_events
-- The bare read of the rows that are folded.
SELECT e.* FROM noetl.event e WHERE e.execution_id >= %(low)s AND e.execution_id < %(high)s

-- name: count_parts
-- What the manifests came to.
SELECT (SELECT sum(events) FROM noetl.manifest)::bigint AS events, pg_total_relation_size('noetl.manifest_part') AS bytes

-- name: size_log
-- What the log's tables of a range take.
SELECT sum(pg_total_relation_size(c.oid))::bigint AS bytes FROM pg_class c
WHERE c.relnamespace = 'noetl'::regnamespace AND c.relkind = 'r' AND c.relname ~ %(pattern)s
