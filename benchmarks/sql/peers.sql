-- name: procrastinate_done
-- Which of these jobs have succeeded.
SELECT id FROM procrastinate_jobs WHERE id = ANY(%(ids)s) AND status = 'succeeded';

-- name: procrastinate_count
-- How many jobs have succeeded.
SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded';

-- name: procrastinate_clear
-- Forget the jobs of the work before.
TRUNCATE procrastinate_jobs CASCADE;

-- name: pgqueuer_done
-- Which of these jobs have succeeded; a driver whose parameters have numbers asks it.
SELECT job_id FROM pgqueuer_log WHERE status = 'successful' AND job_id = ANY($1::bigint[]);

-- name: pgqueuer_count
-- How many jobs have succeeded.
SELECT count(*) FROM pgqueuer_log WHERE status = 'successful';

-- name: pgqueuer_clear
-- Forget the jobs of the work before.
TRUNCATE pgqueuer_log;
