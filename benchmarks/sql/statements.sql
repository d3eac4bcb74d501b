-- name: log_statements
-- Write every statement to the server's log.
ALTER SYSTEM SET log_statement = 'all'

-- name: log_names
-- Say in each line who sent it.
ALTER SYSTEM SET log_line_prefix = '<<%a>> '

-- name: log_statements_no_more
-- As it was.
ALTER SYSTEM RESET log_statement

-- name: log_names_no_more
-- As it was.
ALTER SYSTEM RESET log_line_prefix

-- name: reload
-- Have the settings hold for every session.
SELECT pg_reload_conf()
