-- name: write_checkpoints
-- Record the progress of every shard that advanced since its last checkpoint. A projection that stands within an
-- input's consequences has not projected that input.
INSERT INTO noetl.checkpoint (shard_id, epoch, routed_seq, projected_seq, head_seq, state_digest)
SELECT c.shard_id, c.lease_epoch, c.seq, p.seq, h.seq, c.state_digest
FROM noetl.shard_cursor c
JOIN noetl.shard_head h USING (shard_id)
JOIN (SELECT shard_id, greatest(0, ((last_projected_event_id >> 15) & 1099511627775)
        - ((last_projected_event_id & 32767) <> 32767)::int) AS seq
    FROM noetl.projection_checkpoint) p USING (shard_id)
LEFT JOIN LATERAL (SELECT k.routed_seq, k.projected_seq, k.head_seq FROM noetl.checkpoint k
    WHERE k.shard_id = c.shard_id ORDER BY k.checkpoint_id DESC LIMIT 1) last ON true
WHERE (c.seq, p.seq, h.seq)
        IS DISTINCT FROM (coalesce(last.routed_seq, 0), coalesce(last.projected_seq, 0), coalesce(last.head_seq, 0))
    AND EXISTS (SELECT FROM noetl.execution_shard l WHERE l.role = 'meta' AND l.shard_id = 0
        AND l.owner_instance = %(leader)s AND l.epoch = %(leader_epoch)s)
RETURNING shard_id

-- name: read_checkpoint_ages
-- Read how long ago each shard's last checkpoint was written.
SELECT c.shard_id, extract(epoch FROM clock_timestamp() - last.committed_at)::float8 AS age_s
FROM noetl.shard_cursor c
JOIN LATERAL (SELECT k.committed_at FROM noetl.checkpoint k
    WHERE k.shard_id = c.shard_id ORDER BY k.checkpoint_id DESC LIMIT 1) last ON true
