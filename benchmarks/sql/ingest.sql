-- name: count_chunks
-- How many chunks of these runs stand in the log.
SELECT count(*) AS chunks FROM noetl.event WHERE execution_id = ANY(%(execution_ids)s) AND event_type = 'call.partial';
