-- name: read_state
-- The router's fold of one run, exact up to its last event.
SELECT last_event_id, state FROM noetl.execution_state WHERE execution_id = %(execution_id)s

-- name: read_variable_inputs
-- Variables that were written behind an event, in order: what routing has not folded yet.
SELECT execution_id, event_id, event_type, status, result, meta, dedup_key, catalog_id, event_time
FROM noetl.event
WHERE execution_id = %(execution_id)s AND event_id > %(after)s AND event_type = 'vars.set'
ORDER BY event_id

-- name: read_history
-- A page of a run's log between two events, in the order of their ids.
SELECT execution_id, event_id, event_type, step, command_id, attempt, loop_epoch, iter_index, status, result, meta,
    dedup_key, catalog_id, parent_execution_id, worker_id, event_time
FROM noetl.event
WHERE execution_id = %(execution_id)s AND event_id > %(after)s AND event_id <= %(upto)s
ORDER BY event_id
LIMIT %(limit)s
