-- name: read_shard_owners
-- Read who owns each shard, since when and until when; how many inputs it is behind, the age of the oldest of them, and
-- the age of its last checkpoint. A compactor has no backlog of inputs.
SELECT s.role, s.shard_id, s.epoch, s.owner_instance AS owner,
    CASE WHEN s.owner_instance IS NOT NULL
        THEN extract(epoch FROM s.leased_until - clock_timestamp())::float8 END AS leased_s,
    extract(epoch FROM clock_timestamp() - s.assigned_at)::float8 AS owned_s,
    CASE s.role WHEN 'ingest' THEN h.seq - c.seq WHEN 'compute' THEN h.seq - p.seq END AS lag_inputs,
    CASE WHEN s.role = 'ingest' AND c.seq < h.seq THEN
            (SELECT extract(epoch FROM clock_timestamp() - e.created_at)::float8 FROM noetl.event e
             WHERE e.shard_id = s.shard_id AND (e.event_id & 32767) = 0
                 AND e.event_id > ((s.shard_id::bigint << 55) | (c.seq << 15) | 32767) ORDER BY e.event_id LIMIT 1)
        WHEN s.role = 'compute' AND p.seq < h.seq THEN
            (SELECT extract(epoch FROM clock_timestamp() - e.created_at)::float8 FROM noetl.event e
             WHERE e.shard_id = s.shard_id AND e.event_id > p.projected ORDER BY e.event_id LIMIT 1)
        WHEN s.role <> 'compactor' THEN 0 END AS lag_s,
    CASE s.role WHEN 'compactor' THEN extract(epoch FROM clock_timestamp() - k.folded_at)::float8
        ELSE (SELECT extract(epoch FROM clock_timestamp() - o.committed_at)::float8 FROM noetl.checkpoint o
              WHERE o.shard_id = s.shard_id ORDER BY o.checkpoint_id DESC LIMIT 1) END AS checkpoint_age_s
FROM noetl.execution_shard s
JOIN noetl.shard_head h USING (shard_id)
JOIN noetl.shard_cursor c USING (shard_id)
JOIN noetl.compaction_cursor k USING (shard_id)
JOIN (SELECT shard_id, last_projected_event_id AS projected,
        greatest(0, ((last_projected_event_id >> 15) & 1099511627775)
            - ((last_projected_event_id & 32767) <> 32767)::int) AS seq
    FROM noetl.projection_checkpoint) p USING (shard_id)
WHERE s.role <> 'meta'
ORDER BY s.role, s.shard_id

-- name: read_replicas
-- Read the processes that share shards, and those of meta, of which one owns the only row there is: the leader's.
SELECT r.kind AS role, r.instance, r.status AS standing, r.holds_lock,
    extract(epoch FROM clock_timestamp() - r.heartbeat)::float8 AS silent_s, count(s.shard_id) AS shards
FROM noetl.runtime r
LEFT JOIN noetl.execution_shard s
    ON s.role = r.kind AND s.owner_instance = r.instance AND s.leased_until > clock_timestamp()
WHERE r.kind IN ('ingest', 'compute', 'compactor', 'meta')
GROUP BY r.runtime_id
ORDER BY r.kind, r.instance

-- name: set_standing
-- Say what is wanted with a replica; it learns it with its next renewal.
UPDATE noetl.runtime r SET status = %(standing)s, updated_at = clock_timestamp()
WHERE r.instance = %(instance)s AND r.kind IN ('ingest', 'compute', 'compactor')
RETURNING r.kind AS role, r.instance, r.status AS standing, (SELECT count(*) FROM noetl.execution_shard s
    WHERE s.role = r.kind AND s.owner_instance = r.instance) AS shards
