-- name: describe_table
-- Find a table by its name as SQL reads it: its columns, which of them hold JSON, which are its primary key.
SELECT c.oid::regclass::text AS table_name,
       a.attname AS column_name,
       t.typname IN ('json', 'jsonb') AS is_json,
       coalesce(a.attnum = ANY (i.indkey), false) AS is_key
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
  LEFT JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND i.indisprimary
 WHERE c.oid = to_regclass(%(table_name)s::text)
 ORDER BY a.attnum;

-- name: write_intervals_plainly
-- Write intervals as every other database reads them too.
SET IntervalStyle = 'postgres';
