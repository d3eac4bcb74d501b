-- name: read_lags
-- How many inputs of each shard no one has routed.
SELECT c.shard_id, h.seq - c.seq AS waiting FROM noetl.shard_cursor c JOIN noetl.shard_head h USING (shard_id)

-- name: count_due
-- How many commands of each pool are due and not claimed, counted no further than the limit.
WITH RECURSIVE waiting AS (
    (SELECT pool FROM noetl.command WHERE status = 'pending' ORDER BY pool LIMIT 1)
    UNION ALL
    SELECT (SELECT c.pool FROM noetl.command c WHERE c.status = 'pending' AND c.pool > w.pool ORDER BY c.pool LIMIT 1)
    FROM waiting w WHERE w.pool IS NOT NULL
)
SELECT w.pool, (SELECT count(*) FROM (
    SELECT FROM noetl.command c
    WHERE c.status = 'pending' AND c.pool = w.pool AND c.turn_at <= statement_timestamp() LIMIT %(counted_max)s) d) AS due
FROM waiting w WHERE w.pool IS NOT NULL
