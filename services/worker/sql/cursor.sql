-- name: begin_claim
-- Begin the transaction of a claim.
BEGIN;

-- name: guard_claim
-- Have Postgres undo the claim of a worker that stops in the middle of it, and wait until the claim of an earlier attempt
-- is over: the rows that it holds would be skipped, and the loop would end without them.
SELECT set_config('idle_in_transaction_session_timeout', %(idle)s, true),
       pg_advisory_xact_lock(hashtextextended(%(idempotency_key)s, 0))::text;

-- name: read_claim_number
-- The number of the transaction, by which its fate can be asked for later.
SELECT pg_current_xact_id()::text;

-- name: commit_claim
-- Let the claim stand.
COMMIT;

-- name: read_claim_fate
-- What became of a transaction: committed, aborted, in progress; null when it is older than Postgres remembers.
SELECT pg_xact_status(%(xid)s::text::xid8);
