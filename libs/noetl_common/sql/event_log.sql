-- name: lock_head
-- Take the shard's head until commit: who numbers next waits here.
SELECT seq FROM noetl.shard_head WHERE shard_id = %(shard_id)s FOR UPDATE

-- name: append_inputs
-- Drop duplicates and inputs of executions that are unknown or folded into a manifest; number the rest from the head
-- on, insert them, move the head to the last number given.
WITH given AS (
    SELECT g.*,
        count(*) OVER (PARTITION BY g.execution_id, g.dedup_key ORDER BY g.place
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS occurrence
    FROM ROWS FROM (json_to_recordset(%(events)s::json) AS (
        execution_id bigint, event_type text, step text, command_id bigint, attempt int, loop_epoch bigint,
        iter_index int, status text, result jsonb, meta jsonb, dedup_key text, catalog_id bigint,
        parent_execution_id bigint, worker_id text, event_time timestamptz)) WITH ORDINALITY
        AS g (execution_id, event_type, step, command_id, attempt, loop_epoch, iter_index, status, result, meta,
            dedup_key, catalog_id, parent_execution_id, worker_id, event_time, place)
),
fresh AS (
    SELECT given.*, x.catalog_id AS run_of, x.parent_execution_id AS parent_of,
        (SELECT seq FROM noetl.shard_head WHERE shard_id = %(shard_id)s) + row_number() OVER (ORDER BY given.place) AS seq
    FROM given JOIN noetl.execution x USING (execution_id)
    WHERE x.compacted_at IS NULL AND (given.dedup_key IS NULL OR (given.occurrence = 1 AND NOT EXISTS (
        SELECT FROM noetl.event e WHERE e.execution_id = given.execution_id AND e.dedup_key = given.dedup_key)))
),
inserted AS (
    INSERT INTO noetl.event (execution_id, event_id, shard_id, event_type, step, command_id, attempt, loop_epoch,
        iter_index, status, result, meta, dedup_key, catalog_id, parent_execution_id, worker_id, event_time)
    SELECT execution_id, (%(shard_id)s::bigint << 55) | (seq << 15), %(shard_id)s, event_type, step, command_id,
        attempt, loop_epoch, iter_index, status, result, meta, dedup_key, coalesce(nullif(catalog_id, 0), run_of),
        coalesce(parent_execution_id, parent_of), worker_id, event_time
    FROM fresh
),
moved AS (
    UPDATE noetl.shard_head SET seq = (SELECT max(seq) FROM fresh)
    WHERE shard_id = %(shard_id)s AND EXISTS (SELECT FROM fresh)
)
SELECT place, seq FROM fresh
