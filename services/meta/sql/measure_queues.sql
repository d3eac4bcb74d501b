-- name: measure_queues
-- How many commands of each pool wait, and how many are on lease; both partial indexes answer it.
SELECT pool, count(*) FILTER (WHERE status = 'pending') AS pending, count(*) FILTER (WHERE status = 'claimed') AS inflight
FROM noetl.command
WHERE status IN ('pending', 'claimed')
GROUP BY pool
