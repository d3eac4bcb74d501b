-- name: flow_table
-- The table of the raw flow: the same as the playbook's.
DROP TABLE IF EXISTS raw_flow;
CREATE TABLE raw_flow (item int PRIMARY KEY, patient_id int NOT NULL, name text NOT NULL);

-- name: flow_insert
-- One record.
INSERT INTO raw_flow (item, patient_id, name) VALUES (%(item)s, %(patient_id)s, %(name)s) ON CONFLICT DO NOTHING;

-- name: flow_drop
-- Leave nothing behind.
DROP TABLE raw_flow;

-- name: flow_count
-- How many records the playbook stored.
SELECT count(*) AS items FROM flow;
