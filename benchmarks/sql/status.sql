-- name: seed_status_runs
-- Runs of now as their read models show them, over all shards, one in ten still running or failed.
INSERT INTO noetl.execution (execution_id, shard_id, catalog_id, path, version, status, start_time, end_time,
    current_step, progress)
SELECT %(first)s::bigint + n, (((%(first)s::bigint + n) >> 12) & 1023) %% 16, 7 + n %% 50, 'bench/status/' || n %% 50, 1,
    s.status, clock_timestamp() - interval '1 minute', CASE WHEN s.status <> 'RUNNING' THEN clock_timestamp() END, 'each',
    '{"steps": {"start": {"status": "completed", "entered": 1, "attempts": 1, "started_at": "2026-01-01T00:00:00+00:00",
        "ended_at": "2026-01-01T00:00:01+00:00"},
      "each": {"status": "completed", "entered": 1, "attempts": 2, "started_at": "2026-01-01T00:00:01+00:00",
        "ended_at": "2026-01-01T00:00:09+00:00",
        "items": {"total": 500, "done": 499, "failed": 1}}},
      "counts": {"commands_issued": 501, "commands_completed": 500, "commands_failed": 1}}'
FROM generate_series(0, %(runs)s::int - 1) AS n,
    LATERAL (SELECT CASE n %% 20 WHEN 0 THEN 'RUNNING' WHEN 1 THEN 'FAILED' ELSE 'COMPLETED' END AS status) s

-- name: settle_status_runs
-- Look at the table as autovacuum would have long ago.
VACUUM ANALYZE noetl.execution

-- name: select_bare_run
-- The bare read of one run by its primary key.
SELECT * FROM noetl.execution WHERE execution_id = %(execution_id)s

-- name: execution_updates
-- How often rows of runs were updated, and how often without touching an index.
SELECT n_tup_upd AS updated, n_tup_hot_upd AS hot FROM pg_stat_user_tables
WHERE schemaname = 'noetl' AND relname = 'execution'
