-- name: register_runtime
-- Write a live process's row; a row of the same name is taken over.
INSERT INTO noetl.runtime (runtime_id, kind, name, instance, uri, status, capacity, labels, runtime)
VALUES (%(runtime_id)s, %(kind)s, %(name)s, %(instance)s, %(uri)s, %(status)s, %(capacity)s, %(labels)s::jsonb,
    %(runtime)s::jsonb)
ON CONFLICT (kind, name) DO UPDATE SET instance = excluded.instance, uri = excluded.uri, status = excluded.status,
    capacity = excluded.capacity, labels = excluded.labels, runtime = excluded.runtime,
    heartbeat = clock_timestamp(), updated_at = clock_timestamp()
RETURNING runtime_id, kind, name, runtime

-- name: beat_runtime
-- Note that a registered process lives.
UPDATE noetl.runtime SET heartbeat = clock_timestamp(), status = 'ready'
WHERE kind = %(kind)s AND name = %(name)s
RETURNING runtime_id, kind, name, runtime

-- name: forget_runtime
-- Take a process off the list.
DELETE FROM noetl.runtime WHERE kind = %(kind)s AND name = %(name)s RETURNING runtime_id

-- name: list_runtimes
-- Live processes of a kind.
SELECT runtime_id, kind, name, instance, uri, status, capacity, active, labels, runtime, heartbeat, created_at,
    updated_at
FROM noetl.runtime
WHERE kind = %(kind)s AND (%(status)s::text IS NULL OR status = %(status)s::text)
ORDER BY name
LIMIT %(limit)s

-- name: read_cluster
-- What is fixed for this database.
SELECT cluster_id, shard_count, partition_width_hours FROM noetl.cluster
