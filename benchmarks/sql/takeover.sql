-- name: owner_of
-- Who owns a shard, and where its routing stands.
SELECT s.owner_instance AS owner, c.lease_epoch AS epoch, c.seq
FROM noetl.execution_shard s JOIN noetl.shard_cursor c USING (shard_id)
WHERE s.role = 'ingest' AND s.shard_id = %(shard_id)s

-- name: cursor_of
-- Where a shard's routing stands, and under which epoch.
SELECT lease_epoch AS epoch, seq FROM noetl.shard_cursor WHERE shard_id = %(shard_id)s

-- name: shards_of
-- How many shards each living ingest has, and whether all of them have an owner.
SELECT owner_instance AS owner, count(*) AS shards FROM noetl.execution_shard
WHERE role = 'ingest' AND leased_until > clock_timestamp() GROUP BY 1

-- name: twice_or_never
-- How many items of a run were not issued and completed exactly once, and how many ends it has not exactly one of.
SELECT (SELECT count(*) FROM (
        SELECT i.n FROM generate_series(0, %(items)s::int - 1) AS i (n)
        LEFT JOIN noetl.event e ON e.execution_id = %(execution_id)s AND e.iter_index = i.n
        GROUP BY i.n
        HAVING count(*) FILTER (WHERE e.event_type = 'command.issued') <> 1
            OR count(*) FILTER (WHERE e.event_type = 'command.completed') <> 1) wrong)
    + (SELECT count(*) FROM unnest(ARRAY['loop.done', 'playbook.completed']) AS t (event_type)
        WHERE (SELECT count(*) FROM noetl.event e
            WHERE e.execution_id = %(execution_id)s AND e.event_type = t.event_type) <> 1) AS wrong

-- name: postgres_age
-- For how long the server has run.
SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8 AS age_s
