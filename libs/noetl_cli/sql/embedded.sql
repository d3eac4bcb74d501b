-- What `noetl up` asks of its own Postgres before any schema exists.

-- name: database_exists
-- Return a row when the database exists.
SELECT 1 FROM pg_database WHERE datname = %(name)s

-- name: role_exists
-- Return a row when the login exists.
SELECT 1 FROM pg_roles WHERE rolname = %(name)s
