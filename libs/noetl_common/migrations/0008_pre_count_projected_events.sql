-- Runs that were projected before `counts.events` was kept: counted once from the log, up to where each was projected.
UPDATE noetl.execution x
SET progress = jsonb_set(x.progress, '{counts,events}', to_jsonb((
    SELECT count(*) FROM noetl.event e WHERE e.execution_id = x.execution_id AND e.event_id <= x.last_event_id
)))
WHERE x.progress ? 'counts' AND NOT x.progress -> 'counts' ? 'events';
