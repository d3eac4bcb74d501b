-- name: open_session
-- Name the session, give the playbook's SQL its idempotency key and time limit, and fix how dates are written.
SELECT set_config('application_name', %(application_name)s, false),
       set_config('noetl.idempotency_key', %(idempotency_key)s, false),
       set_config('statement_timeout', %(statement_timeout)s, false),
       set_config('search_path', coalesce(%(search_path)s, current_setting('search_path')), false),
       set_config('TimeZone', 'UTC', false),
       set_config('DateStyle', 'ISO', false),
       set_config('IntervalStyle', 'iso_8601', false);

-- name: close_session
-- Forget all that a script set, prepared, locked or made temporary, so that the next one finds a new session.
DISCARD ALL;
