-- Runs under a concurrency limit: who has a place in its group, and who waits for one in which order.
CREATE TABLE noetl.concurrency (
    execution_id bigint PRIMARY KEY,
    group_id bigint NOT NULL,
    key text NOT NULL,
    run_limit int NOT NULL CHECK (run_limit > 0),
    ticket bigint GENERATED ALWAYS AS IDENTITY,
    is_admitted boolean NOT NULL DEFAULT false,
    joined_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    admitted_at timestamptz
) WITH (fillfactor = 70);
CREATE INDEX concurrency_waiting ON noetl.concurrency (group_id, ticket) WHERE NOT is_admitted;
CREATE INDEX concurrency_admitted ON noetl.concurrency (group_id) WHERE is_admitted;
COMMENT ON TABLE noetl.concurrency IS
    'Runs of concurrency groups until their end, in the order of their tickets. Written by ingest: joined with the start,
admitted and left in decision transactions under the group''s advisory lock.';
