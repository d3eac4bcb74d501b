-- name: make_effects
-- Where the playbook `once` has its effects; nothing but `once: true` keeps a row from coming twice.
CREATE TABLE IF NOT EXISTS chaos_effect (run text NOT NULL, n int NOT NULL);

-- name: read_effects
-- How often each effect of each run happened.
SELECT run, n, count(*)::int AS times FROM chaos_effect GROUP BY run, n;

-- name: read_runs
-- Every run of the load with how it ended; the children of runs are not among them.
SELECT x.execution_id, x.idempotency_key, x.status FROM noetl.execution x
WHERE x.parent_execution_id IS NULL AND x.idempotency_key LIKE 'chaos-%%';

-- name: count_open
-- How many runs have not ended.
SELECT count(*)::int AS open FROM noetl.execution WHERE status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED');

-- name: count_work
-- How much there was: events, commands, claims that were lost, shards that changed hands.
SELECT (SELECT count(*) FROM noetl.event) AS events,
    (SELECT count(*) FROM noetl.command) AS commands,
    (SELECT coalesce(sum(crash_count), 0) FROM noetl.command)::bigint AS leases_lost,
    (SELECT coalesce(sum(epoch), 0) FROM noetl.execution_shard)::bigint AS epochs;
