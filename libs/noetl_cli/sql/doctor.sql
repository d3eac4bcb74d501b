-- What `noetl doctor` reads.

-- name: server_facts
-- Return the server's version and clock.
SELECT current_setting('server_version_num')::int AS version, clock_timestamp() AS now

-- name: applied_migrations
-- Name the migrations applied; no row when the schema is missing.
SELECT name FROM noetl.migration ORDER BY name

-- name: has_schema
-- Return whether any migration was ever applied.
SELECT to_regclass('noetl.migration') IS NOT NULL AS present

-- name: live_roles
-- Count the processes of each role that gave a sign of life lately.
SELECT kind, count(*) AS processes FROM noetl.runtime
WHERE heartbeat > clock_timestamp() - make_interval(secs => %(age_s)s)
GROUP BY kind ORDER BY kind

-- name: shard_ownership
-- Count the shards of each role, and those with a live owner.
SELECT role, count(*) AS shards, count(*) FILTER (WHERE leased_until > clock_timestamp()) AS owned
FROM noetl.execution_shard GROUP BY role ORDER BY role

-- name: read_width
-- Return how wide a partition of the log is; no row before the cluster is initialised.
SELECT partition_width_hours FROM noetl.cluster
