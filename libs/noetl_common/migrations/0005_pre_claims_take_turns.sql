-- Claims take turns among runs: the more of a run is under way, the later the turn of its next command.
-- The default holds for commands that are in the queue now, and for those that the release before still issues.
ALTER TABLE noetl.command ADD COLUMN turn_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX command_turn ON noetl.command (pool, priority DESC, turn_at, available_at) WHERE status = 'pending';
DROP INDEX noetl.command_pending;
