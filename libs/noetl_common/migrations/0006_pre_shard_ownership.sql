-- Who holds a session lock that ends with the process, and when a shard's present owner got it.
ALTER TABLE noetl.runtime ADD COLUMN holds_lock boolean NOT NULL DEFAULT false;
COMMENT ON TABLE noetl.runtime IS
    'Live processes. Each role writes its own row; ingest writes the workers'' rows, and status (ready, cordoned, draining)
of every role''s when an operator asks; meta removes dead ones.';

ALTER TABLE noetl.execution_shard ADD COLUMN assigned_at timestamptz;
