-- name: find_ranges
-- The parts of the log that are closed, oldest first: no execution that begins from now on falls into one.
-- A range whose tables are being taken away, or are gone, is another loop's.
SELECT p.low, p.high, p.suffix
FROM (
    SELECT substring(child.relname FROM 'event_(.*)') AS suffix,
        (regexp_match(pg_get_expr(child.relpartbound, child.oid), 'FROM \(''?(\d+)''?\) TO \(''?(\d+)''?\)'))[1]::bigint
            AS low,
        (regexp_match(pg_get_expr(child.relpartbound, child.oid), 'FROM \(''?(\d+)''?\) TO \(''?(\d+)''?\)'))[2]::bigint
            AS high
    FROM pg_inherits i JOIN pg_class child ON child.oid = i.inhrelid
    WHERE i.inhparent = 'noetl.event'::regclass AND NOT i.inhdetachpending
) p
WHERE p.high <= %(closed_before)s AND NOT EXISTS (SELECT FROM noetl.compaction c WHERE c.low = p.low)
ORDER BY p.low

-- name: hold_fence
-- Hold the fence of a shard until commit: no row means that another process compacts it now.
UPDATE noetl.compaction_cursor SET folded_at = clock_timestamp()
WHERE shard_id = %(shard_id)s AND lease_epoch = %(epoch)s
RETURNING shard_id

-- name: choose_executions
-- The next finished executions of a shard in a range, with how many events each has, or why it must wait.
WITH RECURSIVE candidate AS MATERIALIZED (
    SELECT x.execution_id, x.parent_execution_id, x.status, x.end_time
    FROM noetl.execution x
    WHERE x.shard_id = %(shard_id)s AND x.compacted_at IS NULL
        AND x.execution_id > %(after)s AND x.execution_id >= %(low)s AND x.execution_id < %(high)s
    ORDER BY x.execution_id LIMIT %(limit)s
),
above AS (
    SELECT c.execution_id AS origin, p.execution_id, p.parent_execution_id, p.status, p.end_time
    FROM candidate c JOIN noetl.execution p ON p.execution_id = c.parent_execution_id
    UNION
    SELECT a.origin, p.execution_id, p.parent_execution_id, p.status, p.end_time
    FROM above a JOIN noetl.execution p ON p.execution_id = a.parent_execution_id
),
below AS (
    SELECT c.execution_id AS origin, d.execution_id, d.status, d.end_time
    FROM candidate c JOIN noetl.execution d ON d.parent_execution_id = c.execution_id
    UNION
    SELECT b.origin, d.execution_id, d.status, d.end_time
    FROM below b JOIN noetl.execution d ON d.parent_execution_id = b.execution_id
),
kin AS (
    SELECT DISTINCT origin FROM (
        SELECT origin, status, end_time FROM above UNION ALL SELECT origin, status, end_time FROM below) k
    WHERE status = 'RUNNING' OR end_time IS NULL OR end_time >= %(cutoff)s
),
settled AS (
    SELECT least((c.shard_id::bigint << 55) | (c.seq << 15) | 32767, p.last_projected_event_id) AS upto
    FROM noetl.shard_cursor c JOIN noetl.projection_checkpoint p USING (shard_id) WHERE c.shard_id = %(shard_id)s
)
SELECT c.execution_id,
    CASE
        WHEN c.status = 'RUNNING' OR c.end_time IS NULL THEN 'live'
        WHEN c.end_time >= %(cutoff)s THEN 'recent'
        WHEN c.execution_id IN (SELECT origin FROM kin) THEN 'kin'
        WHEN EXISTS (SELECT FROM {event} e
            WHERE e.execution_id = c.execution_id AND e.event_id > (SELECT upto FROM settled)) THEN 'unsettled'
        WHEN EXISTS (SELECT FROM {command} q
            WHERE q.execution_id = c.execution_id AND q.status IN ('pending', 'claimed')) THEN 'commands'
    END AS waits_for,
    (SELECT count(*) FROM {event} e WHERE e.execution_id = c.execution_id) AS events
FROM candidate c
ORDER BY c.execution_id

-- name: see_one_moment
-- Fold from one snapshot: what is appended meanwhile is in all of a manifest or in none of it.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ

-- name: plan_lookups
-- Sort a batch in memory; plan it by keys, also while the tables have no statistics.
SELECT set_config('work_mem', '64MB', true), set_config('enable_seqscan', 'off', true)

-- name: unfold
-- Forget what was folded of these executions, to fold them again.
WITH parts AS (DELETE FROM noetl.manifest_part WHERE execution_id = ANY (%(ids)s))
DELETE FROM noetl.manifest WHERE execution_id = ANY (%(ids)s)

-- name: fold_events
-- The history of each execution: each event as an array, 500 a part, with the claims and the small results that the
-- list of events shows beside it.
INSERT INTO noetl.manifest_part (execution_id, kind, part_no, first, count, body)
SELECT i.execution_id, 'events', p.part_no, p.first, p.count, p.body
FROM unnest(%(ids)s::bigint[]) AS i (execution_id)
CROSS JOIN LATERAL (
    SELECT l.part_no, min(l.event_id) AS first, count(*) AS count,
        '[' || string_agg(l.line, ',' ORDER BY l.event_id) || ']' AS body
    FROM (
        SELECT e.event_id, ((row_number() OVER (ORDER BY e.event_id)) - 1) / 500 AS part_no,
            json_build_array(e.event_id, e.event_type, e.step, e.command_id, e.attempt, e.loop_epoch, e.iter_index,
                e.status, e.result, e.meta, e.dedup_key, e.catalog_id, e.parent_execution_id, e.worker_id,
                e.event_time, e.created_at, q.worker_id, q.attempt, coalesce(r.shape, o.shape),
                convert_from(coalesce(r.inline_payload, o.inline_payload), 'UTF8'))::text AS line
        FROM {event} e
        LEFT JOIN {command} q ON e.event_type = 'command.issued' AND q.execution_id = e.execution_id
            AND q.command_id = e.command_id AND q.attempt > 0
        LEFT JOIN {result_ref} r ON e.event_type = 'command.completed' AND r.execution_id = e.execution_id
            AND r.ref_id = (e.result -> 'reference' ->> 'ref_id')::bigint
            AND (e.result -> 'reference' ->> 'execution_id')::bigint = e.execution_id
            AND (e.result -> 'reference' ->> 'bytes')::bigint <= %(shown_bytes_max)s
        LEFT JOIN noetl.result_ref o ON e.event_type = 'command.completed'
            AND (e.result -> 'reference' ->> 'execution_id')::bigint <> e.execution_id
            AND o.execution_id = (e.result -> 'reference' ->> 'execution_id')::bigint
            AND o.ref_id = (e.result -> 'reference' ->> 'ref_id')::bigint
            AND (e.result -> 'reference' ->> 'bytes')::bigint <= %(shown_bytes_max)s
        WHERE e.execution_id = i.execution_id
    ) l
    GROUP BY l.part_no
) p

-- name: fold_results
-- The lineage of each step's results: each as an array without its payload, 500 a part, oldest first, with the event
-- that names it and the results that its command's templates could read.
INSERT INTO noetl.manifest_part (execution_id, kind, step, part_no, first, count, body)
SELECT i.execution_id, 'trace', p.step, p.part_no, p.first, p.count, p.body
FROM unnest(%(ids)s::bigint[]) AS i (execution_id)
CROSS JOIN LATERAL (
    SELECT l.step, l.part_no, (array_agg(l.ref_id ORDER BY l.place))[1] AS first, count(*) AS count,
        '[' || string_agg(l.line, ',' ORDER BY l.place) || ']' AS body
    FROM (
        SELECT s.step, s.ref_id, s.place, (s.place - 1) / 500 AS part_no,
            json_build_array(s.ref_id, s.ref, s.parent_ref_id, s.step, s.task_label, s.shape, s.loop_epoch,
                s.iter_index, s.store_tier, s.physical_uri, s.content_type, s.bytes, s.sha256, s.compression, s.rows,
                s.preview, s.created_at, s.status, s.context, s.event_id, s.inputs)::text AS line
        FROM (
            WITH named AS (
                SELECT DISTINCT ON (ref_id) (e.result -> 'reference' ->> 'ref_id')::bigint AS ref_id, e.status,
                    e.event_id, e.result -> 'context' AS context, e.command_id
                FROM {event} e
                WHERE e.execution_id = i.execution_id AND e.result -> 'reference' ? 'ref_id'
                ORDER BY ref_id, e.event_id
            ),
            given AS (
                SELECT c.context_id, jsonb_agg(DISTINCT jsonb_build_array(g.ref -> 'execution_id', g.ref -> 'ref_id',
                    coalesce(g.ref -> 'epoch', '0'::jsonb))) AS inputs
                FROM {command_context} c CROSS JOIN LATERAL (
                    SELECT jsonb_path_query(c.body, '$.results.*') UNION ALL
                    SELECT jsonb_path_query(c.body, '$.ctx.*.ref') UNION ALL
                    SELECT jsonb_path_query(c.body, '$.workload.ref') UNION ALL
                    SELECT c.body -> 'last') AS g (ref)
                WHERE c.execution_id = i.execution_id AND jsonb_typeof(g.ref) = 'object'
                GROUP BY c.context_id
            )
            SELECT r.*, n.status, n.event_id, n.context, g.inputs,
                row_number() OVER (PARTITION BY r.step ORDER BY r.created_at, r.ref_id) AS place
            FROM {result_ref} r
            LEFT JOIN named n ON n.ref_id = r.ref_id
            LEFT JOIN {command} q ON q.execution_id = i.execution_id AND q.command_id = n.command_id
            LEFT JOIN given g ON g.context_id = q.context_id
            WHERE r.execution_id = i.execution_id
        ) s
    ) l
    GROUP BY l.step, l.part_no
) p

-- name: fold_links
-- The results of other runs that each step's events name: what its children returned.
INSERT INTO noetl.manifest_part (execution_id, kind, step, part_no, first, count, body)
SELECT execution_id, 'links', step, 0, min(event_id), count(*),
    '[' || string_agg(line, ',' ORDER BY event_id, line) || ']'
FROM (
    SELECT e.execution_id, e.step, min(e.event_id) AS event_id,
        json_build_array((e.result -> 'reference' ->> 'execution_id')::bigint,
            (e.result -> 'reference' ->> 'ref_id')::bigint,
            coalesce((e.result -> 'reference' ->> 'epoch')::bigint, 0))::text AS line
    FROM {event} e
    WHERE e.execution_id = ANY (%(ids)s) AND e.result -> 'reference' ? 'ref_id' AND e.step IS NOT NULL
        AND (e.result -> 'reference' ->> 'execution_id')::bigint <> e.execution_id
    GROUP BY e.execution_id, e.step, line
) l
GROUP BY execution_id, step

-- name: keep_results
-- Copy the results that outlive their execution: of a scope that does, or not expired yet.
INSERT INTO noetl.kept_result (
    execution_id, ref_id, ref, step, task_label, shape, loop_epoch, iter_index, parent_ref_id, store_tier,
    physical_uri, content_type, bytes, sha256, compression, rows, preview, extracted, inline_payload, auth_reference,
    created_at, expires_at, scope)
SELECT
    execution_id, ref_id, ref, step, task_label, shape, loop_epoch, iter_index, parent_ref_id, store_tier,
    physical_uri, content_type, bytes, sha256, compression, rows, preview, extracted, inline_payload, auth_reference,
    created_at, expires_at, scope
FROM {result_ref}
WHERE execution_id = ANY (%(ids)s) AND (expires_at > clock_timestamp()
    OR (expires_at IS NULL AND scope IN ('workflow', 'permanent')))
ON CONFLICT (execution_id, ref_id) DO NOTHING

-- name: fold_manifests
-- The manifests themselves, last: where one stands, all of the above stands too.
WITH summed AS (
    SELECT e.execution_id, count(*) AS events, max(e.event_id) AS last_event_id, min(e.event_time) AS first_event_time,
        max(e.event_time) AS last_event_time,
        max(e.event_id) FILTER (WHERE e.event_type IN ('playbook.completed', 'playbook.failed', 'playbook.cancelled'))
            AS terminal_event_id,
        encode(sha256(convert_to(coalesce(string_agg(
            e.event_type || '|' || coalesce(e.step, '') || '|' || coalesce(e.iter_index, -1) || '|' ||
                coalesce(e.status, ''), E'\n'
            ORDER BY e.event_type COLLATE "C", coalesce(e.step, '') COLLATE "C", coalesce(e.iter_index, -1),
                coalesce(e.status, '') COLLATE "C")
            FILTER (WHERE NOT (e.event_type IN ('command.issued', 'command.completed', 'command.failed',
                'command.cancelled') AND coalesce(e.loop_epoch, 0) <> 0 AND coalesce(e.iter_index, -1) < 0)), ''),
            'UTF8')), 'hex') AS trace_digest
    FROM {event} e WHERE e.execution_id = ANY (%(ids)s) GROUP BY e.execution_id
),
counted AS (
    SELECT execution_id, jsonb_object_agg(event_type, number) AS counts FROM (
        SELECT execution_id, event_type, count(*) AS number FROM {event}
        WHERE execution_id = ANY (%(ids)s) GROUP BY execution_id, event_type) t
    GROUP BY execution_id
),
ended AS (
    SELECT s.execution_id, e.result -> 'reference' AS terminal_ref
    FROM summed s JOIN {event} e ON e.execution_id = s.execution_id AND e.event_id = s.terminal_event_id
),
chains AS (
    WITH RECURSIVE chain (execution_id, ref_id, depth) AS (
        SELECT execution_id, (terminal_ref ->> 'ref_id')::bigint, 1 FROM ended
        WHERE (terminal_ref ->> 'execution_id')::bigint = execution_id
        UNION ALL
        SELECT c.execution_id, r.parent_ref_id, c.depth + 1
        FROM chain c JOIN {result_ref} r ON r.execution_id = c.execution_id AND r.ref_id = c.ref_id
        WHERE r.parent_ref_id IS NOT NULL AND c.depth < %(chain_max)s
    )
    SELECT execution_id, max(depth) AS depth FROM chain GROUP BY execution_id
),
made AS (
    INSERT INTO noetl.manifest (execution_id, shard_id, catalog_id, path, version, parent_execution_id, status,
        terminal_event_id, terminal_ref, chain_depth, events, commands, results, counts, last_event_id,
        first_event_time, last_event_time, trace_digest, workload, parts)
    SELECT x.execution_id, x.shard_id, x.catalog_id, x.path, x.version, x.parent_execution_id, x.status,
        s.terminal_event_id, n.terminal_ref,
        coalesce(c.depth, (n.terminal_ref IS NOT NULL AND n.terminal_ref <> 'null')::int),
        coalesce(s.events, 0), (SELECT count(*) FROM {command} q WHERE q.execution_id = x.execution_id),
        (SELECT count(*) FROM {result_ref} r WHERE r.execution_id = x.execution_id),
        coalesce(t.counts, jsonb_build_object()), coalesce(s.last_event_id, 0), s.first_event_time, s.last_event_time,
        coalesce(s.trace_digest, encode(sha256(''), 'hex')),
        (SELECT e.result -> 'context' -> 'workload' FROM {event} e
            WHERE e.execution_id = x.execution_id AND e.dedup_key = 'start'),
        (SELECT count(*) FROM noetl.manifest_part p WHERE p.execution_id = x.execution_id)
    FROM noetl.execution x
    LEFT JOIN summed s USING (execution_id) LEFT JOIN counted t USING (execution_id)
    LEFT JOIN ended n USING (execution_id) LEFT JOIN chains c USING (execution_id)
    WHERE x.execution_id = ANY (%(ids)s)
    RETURNING execution_id, compacted_at
)
UPDATE noetl.execution x SET compacted_at = coalesce(x.compacted_at, m.compacted_at)
FROM made m WHERE x.execution_id = m.execution_id
