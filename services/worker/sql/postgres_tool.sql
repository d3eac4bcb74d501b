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

-- name: find_effects
-- Whether the database has a ledger of effects.
SELECT to_regclass('public.noetl_effect') IS NOT NULL;

-- name: lock_effects_table
-- One maker of the ledger at a time: two of CREATE TABLE IF NOT EXISTS collide in the catalog.
SELECT pg_advisory_xact_lock(7305811702614451201);

-- name: make_effects
-- The ledger of effects. `result` is json, not jsonb: what comes back is the very text that was kept.
CREATE TABLE IF NOT EXISTS public.noetl_effect (
    key text PRIMARY KEY,
    execution_id bigint NOT NULL,
    step text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    result json
);

-- name: begin_effect
-- Take the place of an effect in the ledger, or none when it stands there. Waits for one that is being applied.
INSERT INTO public.noetl_effect (key, execution_id, step) VALUES (%(key)s, %(execution_id)s, %(step)s)
ON CONFLICT (key) DO NOTHING
RETURNING key;

-- name: end_effect
-- Keep what the effect returned.
UPDATE public.noetl_effect SET result = %(result)s::json WHERE key = %(key)s;

-- name: read_effect
-- What an effect returned when it was applied.
SELECT result::text FROM public.noetl_effect WHERE key = %(key)s;
