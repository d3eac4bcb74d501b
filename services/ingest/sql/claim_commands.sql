-- name: claim_commands
-- Lease the next commands of a pool to a worker, by priority and then in turn; one that cost a lease before is handed
-- out alone. Whose turn it is was settled when they were issued: here an index is read from its beginning.
WITH candidate AS MATERIALIZED (
    SELECT execution_id, command_id, crash_count, priority, turn_at, available_at
    FROM noetl.command
    WHERE pool = %(pool)s AND status = 'pending' AND available_at <= statement_timestamp()
    ORDER BY priority DESC, turn_at, available_at
    LIMIT %(max)s FOR NO KEY UPDATE SKIP LOCKED
),
ranked AS (
    SELECT candidate.*,
        row_number() OVER (ORDER BY priority DESC, turn_at, available_at) AS place,
        first_value(crash_count) OVER (ORDER BY priority DESC, turn_at, available_at) AS first_crash_count
    FROM candidate
),
chosen AS (
    SELECT execution_id, command_id, place FROM ranked
    WHERE CASE WHEN first_crash_count > 0 THEN place = 1 ELSE crash_count = 0 END
),
leased AS (
    UPDATE noetl.command c SET status = 'claimed', attempt = c.attempt + 1, worker_id = %(worker_id)s,
        claim_token = nextval('noetl.claim_token'),
        lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
    FROM chosen x WHERE c.execution_id = x.execution_id AND c.command_id = x.command_id
    RETURNING x.place, c.execution_id, c.command_id, c.issued_event_id, c.step, c.attempt, c.claim_token, c.context_id,
        c.loop_epoch, c.iter_index, c.item, c.details
)
SELECT * FROM leased ORDER BY place

-- name: read_contexts
-- The contexts that claimed commands share.
SELECT c.execution_id, c.context_id, c.body
FROM json_to_recordset(%(keys)s::json) AS g (execution_id bigint, context_id bigint)
JOIN noetl.command_context c ON c.execution_id = g.execution_id AND c.context_id = g.context_id

-- name: read_results
-- Result rows by key, small payloads included.
SELECT r.execution_id, r.ref_id, r.step, r.task_label, r.shape, r.loop_epoch, r.iter_index, r.parent_ref_id,
    r.store_tier, r.physical_uri, r.content_type, r.bytes, r.sha256, r.compression, r.rows, r.preview, r.extracted,
    r.inline_payload
FROM json_to_recordset(%(keys)s::json) AS g (execution_id bigint, ref_id bigint)
JOIN noetl.result_ref r ON r.execution_id = g.execution_id AND r.ref_id = g.ref_id

-- name: read_loop_results
-- The results of one loop's items, in index order, from an index on; an item's last row is its result.
SELECT DISTINCT ON (iter_index) execution_id, ref_id, step, task_label, shape, loop_epoch, iter_index, parent_ref_id,
    store_tier, physical_uri, content_type, bytes, sha256, compression, rows, preview, extracted, inline_payload
FROM noetl.result_ref
WHERE execution_id = %(execution_id)s AND loop_epoch = %(epoch)s AND iter_index > %(after)s AND loop_epoch <> 0
ORDER BY iter_index, created_at DESC, ref_id DESC
LIMIT %(limit)s

-- name: claim_one_command
-- Lease one named command, if it waits.
UPDATE noetl.command SET status = 'claimed', attempt = attempt + 1, worker_id = %(worker_id)s,
    claim_token = nextval('noetl.claim_token'),
    lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
WHERE execution_id = %(execution_id)s AND command_id = %(command_id)s
    AND status = 'pending' AND available_at <= clock_timestamp()
RETURNING execution_id, command_id, issued_event_id, step, attempt, claim_token, context_id, loop_epoch, iter_index,
    item, details, pool, status, worker_id

-- name: read_command_by_event
-- The command that a command.issued event announced.
SELECT c.execution_id, c.command_id, c.issued_event_id, c.step, c.attempt, coalesce(c.claim_token, 0) AS claim_token,
    c.context_id, c.loop_epoch, c.iter_index, c.item, c.details, c.pool, c.status, c.worker_id,
    extract(epoch FROM c.lease_until - clock_timestamp())::float8 AS lease_left_s
FROM noetl.event e
JOIN noetl.command c ON c.execution_id = e.execution_id AND c.command_id = e.command_id
WHERE e.shard_id = %(shard_id)s AND e.event_id = %(event_id)s AND e.event_type = 'command.issued'

-- name: read_claims
-- What a worker holds on lease: the answer to a claim it never received.
SELECT execution_id, command_id, issued_event_id, step, attempt, claim_token, context_id, loop_epoch, iter_index, item,
    details
FROM noetl.command
WHERE status = 'claimed' AND worker_id = %(worker_id)s AND lease_until > clock_timestamp()
ORDER BY issued_event_id
LIMIT %(limit)s

-- name: note_details
-- Keep what an attempt notes down, if its claim is the current one: it replaces what was noted before.
UPDATE noetl.command SET details = %(details)s::jsonb
WHERE execution_id = %(execution_id)s AND command_id = %(command_id)s
    AND status = 'claimed' AND claim_token = %(claim_token)s
RETURNING command_id

-- name: renew_leases
-- Renew a worker's leases; say which of them are cancelled or lost. A row that another transaction holds is neither.
-- A lease that still has two thirds to run waits for the next beat: short commands then cost no extra write.
WITH given AS MATERIALIZED (
    SELECT DISTINCT execution_id, command_id, claim_token
    FROM json_to_recordset(%(leases)s::json) AS g (execution_id bigint, command_id bigint, claim_token bigint)
),
held AS MATERIALIZED (
    SELECT g.*, c.command_id IS NOT NULL AS is_held, c.cancel_requested,
        c.status = 'claimed' AND c.claim_token = g.claim_token AS is_ours
    FROM given g LEFT JOIN LATERAL (
        SELECT command_id, status, claim_token, cancel_requested
        FROM noetl.command
        WHERE execution_id = g.execution_id AND command_id = g.command_id
        FOR NO KEY UPDATE SKIP LOCKED
    ) c ON true
),
renewed AS (
    UPDATE noetl.command c SET lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
    FROM held h
    WHERE h.is_ours AND c.execution_id = h.execution_id AND c.command_id = h.command_id
        AND c.lease_until < clock_timestamp() + make_interval(secs => %(lease_s)s * 2 / 3)
)
SELECT h.command_id, coalesce(h.cancel_requested, s.cancel_requested, false) AS cancelled,
    NOT coalesce(CASE WHEN h.is_held THEN h.is_ours ELSE s.status = 'claimed' AND s.claim_token = h.claim_token END, false)
        AS lost
FROM held h
LEFT JOIN noetl.command s ON NOT h.is_held AND s.execution_id = h.execution_id AND s.command_id = h.command_id

-- name: renew_named_leases
-- Renew leases by command and worker, for a worker that knows no token; return those it holds.
WITH given AS MATERIALIZED (
    SELECT DISTINCT execution_id, command_id
    FROM json_to_recordset(%(commands)s::json) AS g (execution_id bigint, command_id bigint)
    ORDER BY execution_id, command_id
),
held AS MATERIALIZED (
    SELECT c.* FROM given g CROSS JOIN LATERAL (
        SELECT execution_id, command_id FROM noetl.command
        WHERE execution_id = g.execution_id AND command_id = g.command_id AND status = 'claimed'
            AND worker_id = %(worker_id)s
        FOR NO KEY UPDATE
    ) c
)
UPDATE noetl.command c
SET lease_until = greatest(c.lease_until, clock_timestamp() + make_interval(secs => %(lease_s)s))
FROM held h
WHERE c.execution_id = h.execution_id AND c.command_id = h.command_id
RETURNING c.execution_id, c.command_id

-- name: beat_worker
-- Note that a worker lives and how busy it is.
INSERT INTO noetl.runtime (runtime_id, kind, name, instance, capacity, active)
VALUES (%(runtime_id)s, 'worker_pool', %(worker_id)s, %(worker_id)s, %(capacity)s, %(active)s)
ON CONFLICT (kind, name) DO UPDATE SET heartbeat = clock_timestamp(), capacity = excluded.capacity,
    active = excluded.active, status = 'ready'
