-- name: floor_tables
-- Tables as the runtime's, with the same columns, checks and indexes, in a schema of their own.
DROP SCHEMA IF EXISTS floor CASCADE;
CREATE SCHEMA floor;
CREATE TABLE floor.event (LIKE noetl.event INCLUDING ALL);
CREATE TABLE floor.command (LIKE noetl.command INCLUDING ALL);
CREATE TABLE floor.result_ref (LIKE noetl.result_ref INCLUDING ALL);
CREATE TABLE floor.execution (LIKE noetl.execution INCLUDING ALL);

-- name: floor_events
-- One event an item.
INSERT INTO floor.event (execution_id, event_id, shard_id, event_type, step, command_id, attempt, loop_epoch, iter_index,
    status, result, dedup_key, catalog_id, event_time)
SELECT 1, r.event_id, 0, %(event_type)s, 'start', r.command_id, 1, 1, r.iter_index, 'COMPLETED', %(result)s::jsonb,
    r.dedup_key, 1, clock_timestamp()
FROM json_to_recordset(%(rows)s::json)
    AS r (event_id bigint, command_id bigint, iter_index int, dedup_key text);

-- name: floor_commands
-- One command an item.
INSERT INTO floor.command (execution_id, command_id, shard_id, step, loop_epoch, iter_index, item, context_id,
    issued_event_id)
SELECT 1, r.command_id, 0, 'start', 1, r.iter_index, '{"index": 1}', 1, r.event_id
FROM json_to_recordset(%(rows)s::json) AS r (event_id bigint, command_id bigint, iter_index int);

-- name: floor_executions
-- One execution a run.
INSERT INTO floor.execution (execution_id, shard_id, catalog_id, path, version)
SELECT n, 0, 1, 'benchmarks/floor', 1 FROM generate_series(%(first)s::int, %(last)s::int) AS n;

-- name: floor_results
-- One small result an item.
INSERT INTO floor.result_ref (execution_id, ref_id, ref, step, loop_epoch, iter_index, store_tier, bytes, sha256,
    inline_payload)
SELECT 1, n, 'noetl://execution/1/result/start/' || n, 'start', 1, n, 'db', octet_length(%(payload)s), repeat('0', 64), %(payload)s
FROM generate_series(%(first)s::int, %(last)s::int) AS n;

-- name: floor_claim
-- Put a batch of commands on lease.
UPDATE floor.command SET status = 'claimed', attempt = attempt + 1, claim_token = command_id, worker_id = 'floor',
    lease_until = clock_timestamp() + interval '15 seconds'
WHERE execution_id = 1 AND command_id BETWEEN %(first)s AND %(last)s;

-- name: floor_finish
-- End a batch of commands.
UPDATE floor.command SET status = 'completed', lease_until = NULL
WHERE execution_id = 1 AND command_id BETWEEN %(first)s AND %(last)s AND status = 'claimed';

-- name: floor_drop
-- Leave nothing behind.
DROP SCHEMA floor CASCADE;
