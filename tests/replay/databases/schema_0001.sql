CREATE SCHEMA noetl;
CREATE TABLE noetl.catalog (
    catalog_id bigint NOT NULL,
    path text NOT NULL,
    version integer NOT NULL,
    kind text NOT NULL,
    content text NOT NULL,
    digest text NOT NULL,
    meta jsonb DEFAULT '{}'::jsonb NOT NULL,
    archived_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT catalog_version_check CHECK ((version > 0))
);
COMMENT ON TABLE noetl.catalog IS 'Registered documents, one row a version. Written by ingest.';
CREATE TABLE noetl.checkpoint (
    shard_id smallint NOT NULL,
    checkpoint_id bigint NOT NULL,
    epoch bigint NOT NULL,
    routed_seq bigint NOT NULL,
    projected_seq bigint NOT NULL,
    head_seq bigint NOT NULL,
    state_digest bigint DEFAULT 0 NOT NULL,
    committed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
COMMENT ON TABLE noetl.checkpoint IS 'One row a shard and tick, only when something advanced. Written by meta.';
ALTER TABLE noetl.checkpoint ALTER COLUMN checkpoint_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME noetl.checkpoint_checkpoint_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE SEQUENCE noetl.claim_token
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE noetl.cluster (
    only_row boolean DEFAULT true NOT NULL,
    cluster_id text NOT NULL,
    shard_count smallint NOT NULL,
    partition_width_hours integer NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT cluster_only_row_check CHECK (only_row),
    CONSTRAINT cluster_partition_width_hours_check CHECK ((partition_width_hours > 0)),
    CONSTRAINT cluster_shard_count_check CHECK (((shard_count >= 1) AND (shard_count <= 256)))
);
COMMENT ON TABLE noetl.cluster IS 'What is fixed when the database is initialised. Written once, by meta.';
CREATE TABLE noetl.command (
    execution_id bigint NOT NULL,
    command_id bigint NOT NULL,
    shard_id smallint NOT NULL,
    step text NOT NULL,
    pool text DEFAULT 'default'::text NOT NULL,
    priority smallint DEFAULT 0 NOT NULL,
    status text DEFAULT 'pending'::text NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    crash_count integer DEFAULT 0 NOT NULL,
    claim_token bigint,
    cancel_requested boolean DEFAULT false NOT NULL,
    available_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    lease_until timestamp with time zone,
    worker_id text,
    loop_epoch bigint DEFAULT 0 NOT NULL,
    iter_index integer DEFAULT '-1'::integer NOT NULL,
    item jsonb,
    context_id bigint NOT NULL,
    issued_event_id bigint NOT NULL,
    CONSTRAINT command_item_check CHECK ((octet_length((item)::text) <= 2048)),
    CONSTRAINT command_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'claimed'::text, 'completed'::text, 'failed'::text, 'cancelled'::text])))
)
PARTITION BY RANGE (execution_id);
COMMENT ON TABLE noetl.command IS 'The queue. Issued, claimed and finished by ingest; expired leases returned by meta.';
CREATE TABLE noetl.command_20261116_00 (
    execution_id bigint CONSTRAINT command_execution_id_not_null NOT NULL,
    command_id bigint CONSTRAINT command_command_id_not_null NOT NULL,
    shard_id smallint CONSTRAINT command_shard_id_not_null NOT NULL,
    step text CONSTRAINT command_step_not_null NOT NULL,
    pool text DEFAULT 'default'::text CONSTRAINT command_pool_not_null NOT NULL,
    priority smallint DEFAULT 0 CONSTRAINT command_priority_not_null NOT NULL,
    status text DEFAULT 'pending'::text CONSTRAINT command_status_not_null NOT NULL,
    attempt integer DEFAULT 0 CONSTRAINT command_attempt_not_null NOT NULL,
    crash_count integer DEFAULT 0 CONSTRAINT command_crash_count_not_null NOT NULL,
    claim_token bigint,
    cancel_requested boolean DEFAULT false CONSTRAINT command_cancel_requested_not_null NOT NULL,
    available_at timestamp with time zone DEFAULT clock_timestamp() CONSTRAINT command_available_at_not_null NOT NULL,
    lease_until timestamp with time zone,
    worker_id text,
    loop_epoch bigint DEFAULT 0 CONSTRAINT command_loop_epoch_not_null NOT NULL,
    iter_index integer DEFAULT '-1'::integer CONSTRAINT command_iter_index_not_null NOT NULL,
    item jsonb,
    context_id bigint CONSTRAINT command_context_id_not_null NOT NULL,
    issued_event_id bigint CONSTRAINT command_issued_event_id_not_null NOT NULL,
    CONSTRAINT command_item_check CHECK ((octet_length((item)::text) <= 2048)),
    CONSTRAINT command_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'claimed'::text, 'completed'::text, 'failed'::text, 'cancelled'::text])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_analyze_scale_factor='0.05', autovacuum_vacuum_cost_delay='1');
CREATE TABLE noetl.command_20261123_00 (
    execution_id bigint CONSTRAINT command_execution_id_not_null NOT NULL,
    command_id bigint CONSTRAINT command_command_id_not_null NOT NULL,
    shard_id smallint CONSTRAINT command_shard_id_not_null NOT NULL,
    step text CONSTRAINT command_step_not_null NOT NULL,
    pool text DEFAULT 'default'::text CONSTRAINT command_pool_not_null NOT NULL,
    priority smallint DEFAULT 0 CONSTRAINT command_priority_not_null NOT NULL,
    status text DEFAULT 'pending'::text CONSTRAINT command_status_not_null NOT NULL,
    attempt integer DEFAULT 0 CONSTRAINT command_attempt_not_null NOT NULL,
    crash_count integer DEFAULT 0 CONSTRAINT command_crash_count_not_null NOT NULL,
    claim_token bigint,
    cancel_requested boolean DEFAULT false CONSTRAINT command_cancel_requested_not_null NOT NULL,
    available_at timestamp with time zone DEFAULT clock_timestamp() CONSTRAINT command_available_at_not_null NOT NULL,
    lease_until timestamp with time zone,
    worker_id text,
    loop_epoch bigint DEFAULT 0 CONSTRAINT command_loop_epoch_not_null NOT NULL,
    iter_index integer DEFAULT '-1'::integer CONSTRAINT command_iter_index_not_null NOT NULL,
    item jsonb,
    context_id bigint CONSTRAINT command_context_id_not_null NOT NULL,
    issued_event_id bigint CONSTRAINT command_issued_event_id_not_null NOT NULL,
    CONSTRAINT command_item_check CHECK ((octet_length((item)::text) <= 2048)),
    CONSTRAINT command_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'claimed'::text, 'completed'::text, 'failed'::text, 'cancelled'::text])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_analyze_scale_factor='0.05', autovacuum_vacuum_cost_delay='1');
CREATE TABLE noetl.command_20261130_00 (
    execution_id bigint CONSTRAINT command_execution_id_not_null NOT NULL,
    command_id bigint CONSTRAINT command_command_id_not_null NOT NULL,
    shard_id smallint CONSTRAINT command_shard_id_not_null NOT NULL,
    step text CONSTRAINT command_step_not_null NOT NULL,
    pool text DEFAULT 'default'::text CONSTRAINT command_pool_not_null NOT NULL,
    priority smallint DEFAULT 0 CONSTRAINT command_priority_not_null NOT NULL,
    status text DEFAULT 'pending'::text CONSTRAINT command_status_not_null NOT NULL,
    attempt integer DEFAULT 0 CONSTRAINT command_attempt_not_null NOT NULL,
    crash_count integer DEFAULT 0 CONSTRAINT command_crash_count_not_null NOT NULL,
    claim_token bigint,
    cancel_requested boolean DEFAULT false CONSTRAINT command_cancel_requested_not_null NOT NULL,
    available_at timestamp with time zone DEFAULT clock_timestamp() CONSTRAINT command_available_at_not_null NOT NULL,
    lease_until timestamp with time zone,
    worker_id text,
    loop_epoch bigint DEFAULT 0 CONSTRAINT command_loop_epoch_not_null NOT NULL,
    iter_index integer DEFAULT '-1'::integer CONSTRAINT command_iter_index_not_null NOT NULL,
    item jsonb,
    context_id bigint CONSTRAINT command_context_id_not_null NOT NULL,
    issued_event_id bigint CONSTRAINT command_issued_event_id_not_null NOT NULL,
    CONSTRAINT command_item_check CHECK ((octet_length((item)::text) <= 2048)),
    CONSTRAINT command_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'claimed'::text, 'completed'::text, 'failed'::text, 'cancelled'::text])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_analyze_scale_factor='0.05', autovacuum_vacuum_cost_delay='1');
CREATE TABLE noetl.command_20261207_00 (
    execution_id bigint CONSTRAINT command_execution_id_not_null NOT NULL,
    command_id bigint CONSTRAINT command_command_id_not_null NOT NULL,
    shard_id smallint CONSTRAINT command_shard_id_not_null NOT NULL,
    step text CONSTRAINT command_step_not_null NOT NULL,
    pool text DEFAULT 'default'::text CONSTRAINT command_pool_not_null NOT NULL,
    priority smallint DEFAULT 0 CONSTRAINT command_priority_not_null NOT NULL,
    status text DEFAULT 'pending'::text CONSTRAINT command_status_not_null NOT NULL,
    attempt integer DEFAULT 0 CONSTRAINT command_attempt_not_null NOT NULL,
    crash_count integer DEFAULT 0 CONSTRAINT command_crash_count_not_null NOT NULL,
    claim_token bigint,
    cancel_requested boolean DEFAULT false CONSTRAINT command_cancel_requested_not_null NOT NULL,
    available_at timestamp with time zone DEFAULT clock_timestamp() CONSTRAINT command_available_at_not_null NOT NULL,
    lease_until timestamp with time zone,
    worker_id text,
    loop_epoch bigint DEFAULT 0 CONSTRAINT command_loop_epoch_not_null NOT NULL,
    iter_index integer DEFAULT '-1'::integer CONSTRAINT command_iter_index_not_null NOT NULL,
    item jsonb,
    context_id bigint CONSTRAINT command_context_id_not_null NOT NULL,
    issued_event_id bigint CONSTRAINT command_issued_event_id_not_null NOT NULL,
    CONSTRAINT command_item_check CHECK ((octet_length((item)::text) <= 2048)),
    CONSTRAINT command_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'claimed'::text, 'completed'::text, 'failed'::text, 'cancelled'::text])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_analyze_scale_factor='0.05', autovacuum_vacuum_cost_delay='1');
CREATE TABLE noetl.command_context (
    execution_id bigint NOT NULL,
    context_id bigint NOT NULL,
    body jsonb NOT NULL
)
PARTITION BY RANGE (execution_id);
COMMENT ON TABLE noetl.command_context IS 'What all items of a loop share, stored once. Written by the shard''s ingest.';
CREATE TABLE noetl.command_context_20261116_00 (
    execution_id bigint CONSTRAINT command_context_execution_id_not_null NOT NULL,
    context_id bigint CONSTRAINT command_context_context_id_not_null NOT NULL,
    body jsonb CONSTRAINT command_context_body_not_null NOT NULL
);
CREATE TABLE noetl.command_context_20261123_00 (
    execution_id bigint CONSTRAINT command_context_execution_id_not_null NOT NULL,
    context_id bigint CONSTRAINT command_context_context_id_not_null NOT NULL,
    body jsonb CONSTRAINT command_context_body_not_null NOT NULL
);
CREATE TABLE noetl.command_context_20261130_00 (
    execution_id bigint CONSTRAINT command_context_execution_id_not_null NOT NULL,
    context_id bigint CONSTRAINT command_context_context_id_not_null NOT NULL,
    body jsonb CONSTRAINT command_context_body_not_null NOT NULL
);
CREATE TABLE noetl.command_context_20261207_00 (
    execution_id bigint CONSTRAINT command_context_execution_id_not_null NOT NULL,
    context_id bigint CONSTRAINT command_context_context_id_not_null NOT NULL,
    body jsonb CONSTRAINT command_context_body_not_null NOT NULL
);
CREATE TABLE noetl.credential (
    id bigint NOT NULL,
    name text NOT NULL,
    type text NOT NULL,
    data_encrypted bytea NOT NULL,
    key_wrapped bytea NOT NULL,
    key_id text NOT NULL,
    meta jsonb DEFAULT '{}'::jsonb NOT NULL,
    tags text[] DEFAULT '{}'::text[] NOT NULL,
    description text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
COMMENT ON TABLE noetl.credential IS 'Secrets by alias, sealed with AES-256-GCM under a wrapped key. Written by ingest.';
CREATE TABLE noetl.dead_letter (
    execution_id bigint NOT NULL,
    command_id bigint NOT NULL,
    step text NOT NULL,
    reason text NOT NULL,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
COMMENT ON TABLE noetl.dead_letter IS 'Commands given up as poison. Written by meta.';
CREATE TABLE noetl.event (
    execution_id bigint NOT NULL,
    event_id bigint NOT NULL,
    shard_id smallint NOT NULL,
    event_type text NOT NULL,
    step text,
    command_id bigint,
    attempt integer,
    loop_epoch bigint,
    iter_index integer,
    status text,
    result jsonb,
    meta jsonb,
    dedup_key text,
    catalog_id bigint NOT NULL,
    parent_execution_id bigint,
    worker_id text,
    event_time timestamp with time zone NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT event_guarded CHECK (((event_type <> ALL (ARRAY['command.issued'::text, 'command.completed'::text, 'command.failed'::text, 'command.cancelled'::text, 'loop.done'::text, 'playbook.started'::text, 'playbook.completed'::text, 'playbook.failed'::text, 'playbook.cancelled'::text, 'child.ended'::text, 'timer.fired'::text])) OR (dedup_key IS NOT NULL))),
    CONSTRAINT event_meta_size CHECK (((meta IS NULL) OR (octet_length((meta)::text) <= 1024))),
    CONSTRAINT event_result_shape CHECK (((result IS NULL) OR ((jsonb_typeof(result) = 'object'::text) AND COALESCE((jsonb_typeof((result -> 'status'::text)) = 'string'::text), false) AND ((result - ARRAY['status'::text, 'reference'::text, 'parent_ref'::text, 'context'::text, 'error'::text]) = '{}'::jsonb) AND COALESCE((jsonb_typeof((result -> 'reference'::text)) = ANY (ARRAY['object'::text, 'null'::text])), true) AND COALESCE((jsonb_typeof((result -> 'parent_ref'::text)) = ANY (ARRAY['object'::text, 'null'::text])), true) AND COALESCE((jsonb_typeof((result -> 'context'::text)) = ANY (ARRAY['object'::text, 'null'::text])), true) AND COALESCE((jsonb_typeof((result -> 'error'::text)) = ANY (ARRAY['object'::text, 'null'::text])), true) AND
CASE
    WHEN (jsonb_typeof((result -> 'context'::text)) = 'object'::text) THEN (NOT ((result -> 'context'::text) ?| ARRAY['rows'::text, 'columns'::text, 'data'::text, 'payload'::text, 'result'::text, 'response'::text]))
    ELSE true
END AND (octet_length((result)::text) <= 8192))))
)
PARTITION BY RANGE (execution_id);
COMMENT ON TABLE noetl.event IS 'The log: facts, never updated. Inputs enter through event_log.append; consequences are written by the shard''s ingest.';
CREATE TABLE noetl.event_20261116_00 (
    execution_id bigint CONSTRAINT event_execution_id_not_null NOT NULL,
    event_id bigint CONSTRAINT event_event_id_not_null NOT NULL,
    shard_id smallint CONSTRAINT event_shard_id_not_null NOT NULL,
    event_type text CONSTRAINT event_event_type_not_null NOT NULL,
    step text,
    command_id bigint,
    attempt integer,
    loop_epoch bigint,
    iter_index integer,
    status text,
    result jsonb,
    meta jsonb,
    dedup_key text,
    catalog_id bigint CONSTRAINT event_catalog_id_not_null NOT NULL,
    parent_execution_id bigint,
    worker_id text,
    event_time timestamp with time zone CONSTRAINT event_event_time_not_null NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() CONSTRAINT event_created_at_not_null NOT NULL,
    CONSTRAINT event_guarded CHECK (((event_type <> ALL (ARRAY['command.issued'::text, 'command.completed'::text, 'command.failed'::text, 'command.cancelled'::text, 'loop.done'::text, 'playbook.started'::text, 'playbook.completed'::text, 'playbook.failed'::text, 'playbook.cancelled'::text, 'child.ended'::text, 'timer.fired'::text])) OR (dedup_key IS NOT NULL))),
    CONSTRAINT event_meta_size CHECK (((meta IS NULL) OR (octet_length((meta)::text) <= 1024))),
    CONSTRAINT event_result_shape CHECK (((result IS NULL) OR ((jsonb_typeof(result) = 'object'::text) AND COALESCE((jsonb_typeof((result -> 'status'::text)) = 'string'::text), false) AND ((result - ARRAY['status'::text, 'reference'::text, 'parent_ref'::text, 'context'::text, 'error'::text]) = '{}'::jsonb) AND COALESCE((jsonb_typeof((result -> 'reference'::text)) = ANY (ARRAY['object'::text, 'null'::text])), true) AND COALESCE((jsonb_typeof((result -> 'parent_ref'::text)) = ANY (ARRAY['object'::text, 'null'::text])), true) AND COALESCE((jsonb_typeof((result -> 'context'::text)) = ANY (ARRAY['object'::text, 'null'::text])), true) AND COALESCE((jsonb_typeof((result -> 'error'::text)) = ANY (ARRAY['object'::text, 'null'::text])), true) AND
CASE
    WHEN (jsonb_typeof((result -> 'context'::text)) = 'object'::text) THEN (NOT ((result -> 'context'::text) ?| ARRAY['rows'::text, 'columns'::text, 'data'::text, 'payload'::text, 'result'::text, 'response'::text]))
    ELSE true
END AND (octet_length((result)::text) <= 8192))))
)
WITH (autovacuum_vacuum_insert_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');
CREATE TABLE noetl.event_20261123_00 (
    execution_id bigint CONSTRAINT event_execution_id_not_null NOT NULL,
    event_id bigint CONSTRAINT event_event_id_not_null NOT NULL,
    shard_id smallint CONSTRAINT event_shard_id_not_null NOT NULL,
    event_type text CONSTRAINT event_event_type_not_null NOT NULL,
    step text,
    command_id bigint,
    attempt integer,
    loop_epoch bigint,
    iter_index integer,
    status text,
    result jsonb,
    meta jsonb,
    dedup_key text,
    catalog_id bigint CONSTRAINT event_catalog_id_not_null NOT NULL,
    parent_execution_id bigint,
    worker_id text,
    event_time timestamp with time zone CONSTRAINT event_event_time_not_null NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() CONSTRAINT event_created_at_not_null NOT NULL,
    CONSTRAINT event_guarded CHECK (((event_type <> ALL (ARRAY['command.issued'::text, 'command.completed'::text, 'command.failed'::text, 'command.cancelled'::text, 'loop.done'::text, 'playbook.started'::text, 'playbook.completed'::text, 'playbook.failed'::text, 'playbook.cancelled'::text, 'child.ended'::text, 'timer.fired'::text])) OR (dedup_key IS NOT NULL))),
    CONSTRAINT event_meta_size CHECK (((meta IS NULL) OR (octet_length((meta)::text) <= 1024))),
    CONSTRAINT event_result_shape CHECK (((result IS NULL) OR ((jsonb_typeof(result) = 'object'::text) AND COALESCE((jsonb_typeof((result -> 'status'::text)) = 'string'::text), false) AND ((result - ARRAY['status'::text, 'reference'::text, 'parent_ref'::text, 'context'::text, 'error'::text]) = '{}'::jsonb) AND COALESCE((jsonb_typeof((result -> 'reference'::text)) = ANY (ARRAY['object'::text, 'null'::text])), true) AND COALESCE((jsonb_typeof((result -> 'parent_ref'::text)) = ANY (ARRAY['object'::text, 'null'::text])), true) AND COALESCE((jsonb_typeof((result -> 'context'::text)) = ANY (ARRAY['object'::text, 'null'::text])), true) AND COALESCE((jsonb_typeof((result -> 'error'::text)) = ANY (ARRAY['object'::text, 'null'::text])), true) AND
CASE
    WHEN (jsonb_typeof((result -> 'context'::text)) = 'object'::text) THEN (NOT ((result -> 'context'::text) ?| ARRAY['rows'::text, 'columns'::text, 'data'::text, 'payload'::text, 'result'::text, 'response'::text]))
    ELSE true
END AND (octet_length((result)::text) <= 8192))))
)
WITH (autovacuum_vacuum_insert_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');
CREATE TABLE noetl.event_20261130_00 (
    execution_id bigint CONSTRAINT event_execution_id_not_null NOT NULL,
    event_id bigint CONSTRAINT event_event_id_not_null NOT NULL,
    shard_id smallint CONSTRAINT event_shard_id_not_null NOT NULL,
    event_type text CONSTRAINT event_event_type_not_null NOT NULL,
    step text,
    command_id bigint,
    attempt integer,
    loop_epoch bigint,
    iter_index integer,
    status text,
    result jsonb,
    meta jsonb,
    dedup_key text,
    catalog_id bigint CONSTRAINT event_catalog_id_not_null NOT NULL,
    parent_execution_id bigint,
    worker_id text,
    event_time timestamp with time zone CONSTRAINT event_event_time_not_null NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() CONSTRAINT event_created_at_not_null NOT NULL,
    CONSTRAINT event_guarded CHECK (((event_type <> ALL (ARRAY['command.issued'::text, 'command.completed'::text, 'command.failed'::text, 'command.cancelled'::text, 'loop.done'::text, 'playbook.started'::text, 'playbook.completed'::text, 'playbook.failed'::text, 'playbook.cancelled'::text, 'child.ended'::text, 'timer.fired'::text])) OR (dedup_key IS NOT NULL))),
    CONSTRAINT event_meta_size CHECK (((meta IS NULL) OR (octet_length((meta)::text) <= 1024))),
    CONSTRAINT event_result_shape CHECK (((result IS NULL) OR ((jsonb_typeof(result) = 'object'::text) AND COALESCE((jsonb_typeof((result -> 'status'::text)) = 'string'::text), false) AND ((result - ARRAY['status'::text, 'reference'::text, 'parent_ref'::text, 'context'::text, 'error'::text]) = '{}'::jsonb) AND COALESCE((jsonb_typeof((result -> 'reference'::text)) = ANY (ARRAY['object'::text, 'null'::text])), true) AND COALESCE((jsonb_typeof((result -> 'parent_ref'::text)) = ANY (ARRAY['object'::text, 'null'::text])), true) AND COALESCE((jsonb_typeof((result -> 'context'::text)) = ANY (ARRAY['object'::text, 'null'::text])), true) AND COALESCE((jsonb_typeof((result -> 'error'::text)) = ANY (ARRAY['object'::text, 'null'::text])), true) AND
CASE
    WHEN (jsonb_typeof((result -> 'context'::text)) = 'object'::text) THEN (NOT ((result -> 'context'::text) ?| ARRAY['rows'::text, 'columns'::text, 'data'::text, 'payload'::text, 'result'::text, 'response'::text]))
    ELSE true
END AND (octet_length((result)::text) <= 8192))))
)
WITH (autovacuum_vacuum_insert_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');
CREATE TABLE noetl.event_20261207_00 (
    execution_id bigint CONSTRAINT event_execution_id_not_null NOT NULL,
    event_id bigint CONSTRAINT event_event_id_not_null NOT NULL,
    shard_id smallint CONSTRAINT event_shard_id_not_null NOT NULL,
    event_type text CONSTRAINT event_event_type_not_null NOT NULL,
    step text,
    command_id bigint,
    attempt integer,
    loop_epoch bigint,
    iter_index integer,
    status text,
    result jsonb,
    meta jsonb,
    dedup_key text,
    catalog_id bigint CONSTRAINT event_catalog_id_not_null NOT NULL,
    parent_execution_id bigint,
    worker_id text,
    event_time timestamp with time zone CONSTRAINT event_event_time_not_null NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() CONSTRAINT event_created_at_not_null NOT NULL,
    CONSTRAINT event_guarded CHECK (((event_type <> ALL (ARRAY['command.issued'::text, 'command.completed'::text, 'command.failed'::text, 'command.cancelled'::text, 'loop.done'::text, 'playbook.started'::text, 'playbook.completed'::text, 'playbook.failed'::text, 'playbook.cancelled'::text, 'child.ended'::text, 'timer.fired'::text])) OR (dedup_key IS NOT NULL))),
    CONSTRAINT event_meta_size CHECK (((meta IS NULL) OR (octet_length((meta)::text) <= 1024))),
    CONSTRAINT event_result_shape CHECK (((result IS NULL) OR ((jsonb_typeof(result) = 'object'::text) AND COALESCE((jsonb_typeof((result -> 'status'::text)) = 'string'::text), false) AND ((result - ARRAY['status'::text, 'reference'::text, 'parent_ref'::text, 'context'::text, 'error'::text]) = '{}'::jsonb) AND COALESCE((jsonb_typeof((result -> 'reference'::text)) = ANY (ARRAY['object'::text, 'null'::text])), true) AND COALESCE((jsonb_typeof((result -> 'parent_ref'::text)) = ANY (ARRAY['object'::text, 'null'::text])), true) AND COALESCE((jsonb_typeof((result -> 'context'::text)) = ANY (ARRAY['object'::text, 'null'::text])), true) AND COALESCE((jsonb_typeof((result -> 'error'::text)) = ANY (ARRAY['object'::text, 'null'::text])), true) AND
CASE
    WHEN (jsonb_typeof((result -> 'context'::text)) = 'object'::text) THEN (NOT ((result -> 'context'::text) ?| ARRAY['rows'::text, 'columns'::text, 'data'::text, 'payload'::text, 'result'::text, 'response'::text]))
    ELSE true
END AND (octet_length((result)::text) <= 8192))))
)
WITH (autovacuum_vacuum_insert_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');
CREATE TABLE noetl.execution (
    execution_id bigint NOT NULL,
    shard_id smallint NOT NULL,
    catalog_id bigint NOT NULL,
    path text NOT NULL,
    version integer NOT NULL,
    parent_execution_id bigint,
    parent_command_id bigint,
    idempotency_key text,
    start_time timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    status text DEFAULT 'RUNNING'::text NOT NULL,
    current_step text,
    progress jsonb DEFAULT '{}'::jsonb NOT NULL,
    result jsonb,
    error jsonb,
    end_time timestamp with time zone,
    last_event_id bigint DEFAULT 0 NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT execution_status_check CHECK ((status = ANY (ARRAY['RUNNING'::text, 'COMPLETED'::text, 'FAILED'::text, 'CANCELLED'::text])))
)
WITH (fillfactor='70');
COMMENT ON TABLE noetl.execution IS 'One row a run. Columns up to start_time: written once by ingest. From status on: the read model of compute.';
CREATE TABLE noetl.execution_shard (
    role text NOT NULL,
    shard_id smallint NOT NULL,
    owner_instance text,
    epoch bigint DEFAULT 0 NOT NULL,
    leased_until timestamp with time zone,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
)
WITH (fillfactor='10');
COMMENT ON TABLE noetl.execution_shard IS 'Who owns a shard in a role, until when. Assigned by meta; leased_until renewed by the owner. Role meta, shard 0 is the leader.';
CREATE TABLE noetl.execution_state (
    execution_id bigint NOT NULL,
    shard_id smallint NOT NULL,
    last_event_id bigint NOT NULL,
    state jsonb NOT NULL
)
WITH (fillfactor='50');
COMMENT ON TABLE noetl.execution_state IS 'The router''s fold, exact up to shard_cursor. Written by the shard''s ingest in the decision transaction.';
CREATE TABLE noetl.migration (
    name text NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
CREATE TABLE noetl.projection_checkpoint (
    shard_id smallint NOT NULL,
    lease_epoch bigint DEFAULT 0 NOT NULL,
    last_projected_event_id bigint DEFAULT 0 NOT NULL,
    last_projected_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    lag_ms integer DEFAULT 0 NOT NULL
)
WITH (fillfactor='10');
COMMENT ON TABLE noetl.projection_checkpoint IS 'How far a shard is projected. last_projected_* and lag_ms by the owning compute, lease_epoch by meta.';
CREATE TABLE noetl.projection_state (
    execution_id bigint NOT NULL,
    last_event_id bigint NOT NULL,
    state jsonb NOT NULL
)
WITH (fillfactor='50');
COMMENT ON TABLE noetl.projection_state IS 'The projection''s own fold, beside the read models. Written by compute.';
CREATE TABLE noetl.result_ref (
    execution_id bigint NOT NULL,
    ref_id bigint NOT NULL,
    ref text NOT NULL,
    step text NOT NULL,
    task_label text DEFAULT ''::text NOT NULL,
    shape text DEFAULT 'plain'::text NOT NULL,
    loop_epoch bigint DEFAULT 0 NOT NULL,
    iter_index integer DEFAULT '-1'::integer NOT NULL,
    parent_ref_id bigint,
    store_tier text NOT NULL,
    physical_uri text DEFAULT ''::text NOT NULL,
    content_type text DEFAULT 'application/json'::text NOT NULL,
    bytes bigint NOT NULL,
    sha256 text NOT NULL,
    compression text DEFAULT 'none'::text NOT NULL,
    rows bigint,
    preview jsonb,
    extracted jsonb,
    inline_payload bytea,
    auth_reference text,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone,
    CONSTRAINT result_ref_inline_payload_check CHECK ((octet_length(inline_payload) <= 8192)),
    CONSTRAINT result_ref_shape_check CHECK ((shape = ANY (ARRAY['plain'::text, 'pipeline'::text, 'loop'::text]))),
    CONSTRAINT result_ref_store_tier_check CHECK ((store_tier = ANY (ARRAY['db'::text, 'disk'::text, 'pvc'::text, 'minio'::text, 's3'::text, 'gcs'::text, 'kv'::text])))
)
PARTITION BY RANGE (execution_id);
COMMENT ON TABLE noetl.result_ref IS 'Where each payload is; small ones are in the row. Written by ingest when the event that names it is accepted.';
CREATE TABLE noetl.result_ref_20261116_00 (
    execution_id bigint CONSTRAINT result_ref_execution_id_not_null NOT NULL,
    ref_id bigint CONSTRAINT result_ref_ref_id_not_null NOT NULL,
    ref text CONSTRAINT result_ref_ref_not_null NOT NULL,
    step text CONSTRAINT result_ref_step_not_null NOT NULL,
    task_label text DEFAULT ''::text CONSTRAINT result_ref_task_label_not_null NOT NULL,
    shape text DEFAULT 'plain'::text CONSTRAINT result_ref_shape_not_null NOT NULL,
    loop_epoch bigint DEFAULT 0 CONSTRAINT result_ref_loop_epoch_not_null NOT NULL,
    iter_index integer DEFAULT '-1'::integer CONSTRAINT result_ref_iter_index_not_null NOT NULL,
    parent_ref_id bigint,
    store_tier text CONSTRAINT result_ref_store_tier_not_null NOT NULL,
    physical_uri text DEFAULT ''::text CONSTRAINT result_ref_physical_uri_not_null NOT NULL,
    content_type text DEFAULT 'application/json'::text CONSTRAINT result_ref_content_type_not_null NOT NULL,
    bytes bigint CONSTRAINT result_ref_bytes_not_null NOT NULL,
    sha256 text CONSTRAINT result_ref_sha256_not_null NOT NULL,
    compression text DEFAULT 'none'::text CONSTRAINT result_ref_compression_not_null NOT NULL,
    rows bigint,
    preview jsonb,
    extracted jsonb,
    inline_payload bytea,
    auth_reference text,
    created_at timestamp with time zone DEFAULT clock_timestamp() CONSTRAINT result_ref_created_at_not_null NOT NULL,
    expires_at timestamp with time zone,
    CONSTRAINT result_ref_inline_payload_check CHECK ((octet_length(inline_payload) <= 8192)),
    CONSTRAINT result_ref_shape_check CHECK ((shape = ANY (ARRAY['plain'::text, 'pipeline'::text, 'loop'::text]))),
    CONSTRAINT result_ref_store_tier_check CHECK ((store_tier = ANY (ARRAY['db'::text, 'disk'::text, 'pvc'::text, 'minio'::text, 's3'::text, 'gcs'::text, 'kv'::text])))
);
CREATE TABLE noetl.result_ref_20261123_00 (
    execution_id bigint CONSTRAINT result_ref_execution_id_not_null NOT NULL,
    ref_id bigint CONSTRAINT result_ref_ref_id_not_null NOT NULL,
    ref text CONSTRAINT result_ref_ref_not_null NOT NULL,
    step text CONSTRAINT result_ref_step_not_null NOT NULL,
    task_label text DEFAULT ''::text CONSTRAINT result_ref_task_label_not_null NOT NULL,
    shape text DEFAULT 'plain'::text CONSTRAINT result_ref_shape_not_null NOT NULL,
    loop_epoch bigint DEFAULT 0 CONSTRAINT result_ref_loop_epoch_not_null NOT NULL,
    iter_index integer DEFAULT '-1'::integer CONSTRAINT result_ref_iter_index_not_null NOT NULL,
    parent_ref_id bigint,
    store_tier text CONSTRAINT result_ref_store_tier_not_null NOT NULL,
    physical_uri text DEFAULT ''::text CONSTRAINT result_ref_physical_uri_not_null NOT NULL,
    content_type text DEFAULT 'application/json'::text CONSTRAINT result_ref_content_type_not_null NOT NULL,
    bytes bigint CONSTRAINT result_ref_bytes_not_null NOT NULL,
    sha256 text CONSTRAINT result_ref_sha256_not_null NOT NULL,
    compression text DEFAULT 'none'::text CONSTRAINT result_ref_compression_not_null NOT NULL,
    rows bigint,
    preview jsonb,
    extracted jsonb,
    inline_payload bytea,
    auth_reference text,
    created_at timestamp with time zone DEFAULT clock_timestamp() CONSTRAINT result_ref_created_at_not_null NOT NULL,
    expires_at timestamp with time zone,
    CONSTRAINT result_ref_inline_payload_check CHECK ((octet_length(inline_payload) <= 8192)),
    CONSTRAINT result_ref_shape_check CHECK ((shape = ANY (ARRAY['plain'::text, 'pipeline'::text, 'loop'::text]))),
    CONSTRAINT result_ref_store_tier_check CHECK ((store_tier = ANY (ARRAY['db'::text, 'disk'::text, 'pvc'::text, 'minio'::text, 's3'::text, 'gcs'::text, 'kv'::text])))
);
CREATE TABLE noetl.result_ref_20261130_00 (
    execution_id bigint CONSTRAINT result_ref_execution_id_not_null NOT NULL,
    ref_id bigint CONSTRAINT result_ref_ref_id_not_null NOT NULL,
    ref text CONSTRAINT result_ref_ref_not_null NOT NULL,
    step text CONSTRAINT result_ref_step_not_null NOT NULL,
    task_label text DEFAULT ''::text CONSTRAINT result_ref_task_label_not_null NOT NULL,
    shape text DEFAULT 'plain'::text CONSTRAINT result_ref_shape_not_null NOT NULL,
    loop_epoch bigint DEFAULT 0 CONSTRAINT result_ref_loop_epoch_not_null NOT NULL,
    iter_index integer DEFAULT '-1'::integer CONSTRAINT result_ref_iter_index_not_null NOT NULL,
    parent_ref_id bigint,
    store_tier text CONSTRAINT result_ref_store_tier_not_null NOT NULL,
    physical_uri text DEFAULT ''::text CONSTRAINT result_ref_physical_uri_not_null NOT NULL,
    content_type text DEFAULT 'application/json'::text CONSTRAINT result_ref_content_type_not_null NOT NULL,
    bytes bigint CONSTRAINT result_ref_bytes_not_null NOT NULL,
    sha256 text CONSTRAINT result_ref_sha256_not_null NOT NULL,
    compression text DEFAULT 'none'::text CONSTRAINT result_ref_compression_not_null NOT NULL,
    rows bigint,
    preview jsonb,
    extracted jsonb,
    inline_payload bytea,
    auth_reference text,
    created_at timestamp with time zone DEFAULT clock_timestamp() CONSTRAINT result_ref_created_at_not_null NOT NULL,
    expires_at timestamp with time zone,
    CONSTRAINT result_ref_inline_payload_check CHECK ((octet_length(inline_payload) <= 8192)),
    CONSTRAINT result_ref_shape_check CHECK ((shape = ANY (ARRAY['plain'::text, 'pipeline'::text, 'loop'::text]))),
    CONSTRAINT result_ref_store_tier_check CHECK ((store_tier = ANY (ARRAY['db'::text, 'disk'::text, 'pvc'::text, 'minio'::text, 's3'::text, 'gcs'::text, 'kv'::text])))
);
CREATE TABLE noetl.result_ref_20261207_00 (
    execution_id bigint CONSTRAINT result_ref_execution_id_not_null NOT NULL,
    ref_id bigint CONSTRAINT result_ref_ref_id_not_null NOT NULL,
    ref text CONSTRAINT result_ref_ref_not_null NOT NULL,
    step text CONSTRAINT result_ref_step_not_null NOT NULL,
    task_label text DEFAULT ''::text CONSTRAINT result_ref_task_label_not_null NOT NULL,
    shape text DEFAULT 'plain'::text CONSTRAINT result_ref_shape_not_null NOT NULL,
    loop_epoch bigint DEFAULT 0 CONSTRAINT result_ref_loop_epoch_not_null NOT NULL,
    iter_index integer DEFAULT '-1'::integer CONSTRAINT result_ref_iter_index_not_null NOT NULL,
    parent_ref_id bigint,
    store_tier text CONSTRAINT result_ref_store_tier_not_null NOT NULL,
    physical_uri text DEFAULT ''::text CONSTRAINT result_ref_physical_uri_not_null NOT NULL,
    content_type text DEFAULT 'application/json'::text CONSTRAINT result_ref_content_type_not_null NOT NULL,
    bytes bigint CONSTRAINT result_ref_bytes_not_null NOT NULL,
    sha256 text CONSTRAINT result_ref_sha256_not_null NOT NULL,
    compression text DEFAULT 'none'::text CONSTRAINT result_ref_compression_not_null NOT NULL,
    rows bigint,
    preview jsonb,
    extracted jsonb,
    inline_payload bytea,
    auth_reference text,
    created_at timestamp with time zone DEFAULT clock_timestamp() CONSTRAINT result_ref_created_at_not_null NOT NULL,
    expires_at timestamp with time zone,
    CONSTRAINT result_ref_inline_payload_check CHECK ((octet_length(inline_payload) <= 8192)),
    CONSTRAINT result_ref_shape_check CHECK ((shape = ANY (ARRAY['plain'::text, 'pipeline'::text, 'loop'::text]))),
    CONSTRAINT result_ref_store_tier_check CHECK ((store_tier = ANY (ARRAY['db'::text, 'disk'::text, 'pvc'::text, 'minio'::text, 's3'::text, 'gcs'::text, 'kv'::text])))
);
CREATE TABLE noetl.runtime (
    runtime_id bigint NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    instance text NOT NULL,
    uri text DEFAULT ''::text NOT NULL,
    status text DEFAULT 'ready'::text NOT NULL,
    capacity integer DEFAULT 0 NOT NULL,
    active integer DEFAULT 0 NOT NULL,
    labels jsonb DEFAULT '{}'::jsonb NOT NULL,
    runtime jsonb DEFAULT '{}'::jsonb NOT NULL,
    heartbeat timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
COMMENT ON TABLE noetl.runtime IS 'Live processes. Each role writes its own row; ingest writes the workers'' rows; meta removes dead ones.';
CREATE TABLE noetl.shard_cursor (
    shard_id smallint NOT NULL,
    lease_epoch bigint DEFAULT 0 NOT NULL,
    seq bigint DEFAULT 0 NOT NULL,
    state_digest bigint DEFAULT 0 NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
)
WITH (fillfactor='10');
COMMENT ON TABLE noetl.shard_cursor IS 'How far a shard is routed: watermark, fence and exactly-once guard. seq by the owning ingest, lease_epoch by meta.';
CREATE TABLE noetl.shard_head (
    shard_id smallint NOT NULL,
    seq bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='10');
COMMENT ON TABLE noetl.shard_head IS 'The last number given to an input of a shard; its row lock is what makes numbers gapless. Written by event_log.append.';
CREATE TABLE noetl.timer (
    execution_id bigint NOT NULL,
    timer_id bigint NOT NULL,
    shard_id smallint NOT NULL,
    due_at timestamp with time zone NOT NULL,
    kind text NOT NULL,
    cause_event_id bigint NOT NULL
);
COMMENT ON TABLE noetl.timer IS 'What a shard must be woken for. Written and fired by the shard''s ingest.';
ALTER TABLE ONLY noetl.command ATTACH PARTITION noetl.command_20261116_00 FOR VALUES FROM ('380507258880000000') TO ('383043973939200000');
ALTER TABLE ONLY noetl.command ATTACH PARTITION noetl.command_20261123_00 FOR VALUES FROM ('383043973939200000') TO ('385580688998400000');
ALTER TABLE ONLY noetl.command ATTACH PARTITION noetl.command_20261130_00 FOR VALUES FROM ('385580688998400000') TO ('388117404057600000');
ALTER TABLE ONLY noetl.command ATTACH PARTITION noetl.command_20261207_00 FOR VALUES FROM ('388117404057600000') TO ('390654119116800000');
ALTER TABLE ONLY noetl.command_context ATTACH PARTITION noetl.command_context_20261116_00 FOR VALUES FROM ('380507258880000000') TO ('383043973939200000');
ALTER TABLE ONLY noetl.command_context ATTACH PARTITION noetl.command_context_20261123_00 FOR VALUES FROM ('383043973939200000') TO ('385580688998400000');
ALTER TABLE ONLY noetl.command_context ATTACH PARTITION noetl.command_context_20261130_00 FOR VALUES FROM ('385580688998400000') TO ('388117404057600000');
ALTER TABLE ONLY noetl.command_context ATTACH PARTITION noetl.command_context_20261207_00 FOR VALUES FROM ('388117404057600000') TO ('390654119116800000');
ALTER TABLE ONLY noetl.event ATTACH PARTITION noetl.event_20261116_00 FOR VALUES FROM ('380507258880000000') TO ('383043973939200000');
ALTER TABLE ONLY noetl.event ATTACH PARTITION noetl.event_20261123_00 FOR VALUES FROM ('383043973939200000') TO ('385580688998400000');
ALTER TABLE ONLY noetl.event ATTACH PARTITION noetl.event_20261130_00 FOR VALUES FROM ('385580688998400000') TO ('388117404057600000');
ALTER TABLE ONLY noetl.event ATTACH PARTITION noetl.event_20261207_00 FOR VALUES FROM ('388117404057600000') TO ('390654119116800000');
ALTER TABLE ONLY noetl.result_ref ATTACH PARTITION noetl.result_ref_20261116_00 FOR VALUES FROM ('380507258880000000') TO ('383043973939200000');
ALTER TABLE ONLY noetl.result_ref ATTACH PARTITION noetl.result_ref_20261123_00 FOR VALUES FROM ('383043973939200000') TO ('385580688998400000');
ALTER TABLE ONLY noetl.result_ref ATTACH PARTITION noetl.result_ref_20261130_00 FOR VALUES FROM ('385580688998400000') TO ('388117404057600000');
ALTER TABLE ONLY noetl.result_ref ATTACH PARTITION noetl.result_ref_20261207_00 FOR VALUES FROM ('388117404057600000') TO ('390654119116800000');
INSERT INTO noetl.catalog VALUES (382855445872905452, 'replay/loop', 1, 'Playbook', 'apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: loop, path: replay/loop}
workload: {numbers: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}
workflow:
  - step: start
    tool: {kind: noop}
    set: {ctx.factor: "{{ 3 }}"}
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: "{{ numbers }}", iterator: n, spec: {mode: parallel, max_in_flight: 8}}
    tool:
      kind: python
      input: {n: "{{ iter.n }}", factor: "{{ ctx.factor }}"}
      code: |
        import time
        time.sleep(0.3)
        result = {"product": n * factor}
    next:
      spec: {mode: inclusive}
      arcs: [{step: total}, {step: count}]
  - step: total
    tool:
      kind: python
      input: {products: "{{ each.results }}"}
      code: |
        result = {"total": sum(item["product"] for item in products)}
    next: {arcs: [{step: end}]}
  - step: count
    tool:
      kind: python
      input: {products: "{{ each.results }}"}
      code: |
        result = {"count": len(products)}
    next: {arcs: [{step: end}]}
  - step: end
    tool:
      kind: python
      input: {total: "{{ total.total }}", count: "{{ count.count }}"}
      code: |
        result = {"total": total, "count": count}
', '0f26fd3b318f9ee14f856018f7f22c1bdbb200ae1580050c0bf997f2494e822a', '{"name": "loop"}', NULL, '2026-11-22 11:30:51.40824+00');
INSERT INTO noetl.catalog VALUES (382855445939068747, 'replay/child', 1, 'Playbook', 'apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: child, path: replay/child}
workload: {n: 1, fails: false}
workflow:
  - step: start
    tool:
      kind: python
      input: {n: "{{ n }}", fails: "{{ fails }}"}
      code: |
        import time
        if fails:
            raise ValueError("as it was asked to")
        time.sleep(1.5)
        result = {"doubled": 2 * n}
', 'faac968cb46a644e8450df7aefea97b21f745633c862b4f09feb6ba1813d3561', '{"name": "child"}', NULL, '2026-11-22 11:30:51.430089+00');
INSERT INTO noetl.catalog VALUES (382855446008879441, 'replay/parent', 1, 'Playbook', 'apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: parent, path: replay/parent}
workload: {numbers: [1, 2, 3, 4]}
workflow:
  - step: start
    loop: {in: "{{ numbers }}", iterator: n, spec: {mode: parallel, max_in_flight: 2}}
    tool:
      - before: {kind: python, input: {n: "{{ iter.n }}"}, code: "result = {''n'': n + 10}"}
      - call: {kind: playbook, path: replay/child, input: {n: "{{ before.n }}"}}
      - after: {kind: python, input: {d: "{{ _prev }}"}, code: "result = {''more'': d}"}
    next: {arcs: [{step: end}]}
  - step: end
    tool:
      kind: python
      input: {results: "{{ start.results }}"}
      code: |
        result = {"results": results}
', '2d7851390c4934726ec530d978ad06bbfee5002a7adcb40a7b06b227bd3dd6e0', '{"name": "parent"}', NULL, '2026-11-22 11:30:51.445774+00');
INSERT INTO noetl.catalog VALUES (382855446080433479, 'replay/retry', 1, 'Playbook', 'apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: retry, path: replay/retry}
workflow:
  - step: start
    tool:
      - call:
          kind: playbook
          path: replay/child
          input: {n: 1, fails: true}
          spec: {policy: {rules: [{when: "{{ output.status == ''error'' }}", then: {do: retry, attempts: 3, delay: 4}}]}}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop}
', '14d241310d48b9492c6f65ccdce581870d310ca87cdaff1485ff168eeb04b5cc', '{"name": "retry"}', NULL, '2026-11-22 11:30:51.457633+00');
INSERT INTO noetl.checkpoint OVERRIDING SYSTEM VALUE VALUES (14, 1, 1, 4, 4, 4, 0, '2026-11-22 11:30:52.348448+00');
INSERT INTO noetl.checkpoint OVERRIDING SYSTEM VALUE VALUES (15, 2, 1, 1, 1, 1, 0, '2026-11-22 11:30:52.348576+00');
INSERT INTO noetl.checkpoint OVERRIDING SYSTEM VALUE VALUES (1, 3, 1, 1, 1, 1, 0, '2026-11-22 11:30:52.34858+00');
INSERT INTO noetl.checkpoint OVERRIDING SYSTEM VALUE VALUES (5, 4, 1, 1, 1, 1, 0, '2026-11-22 11:30:52.348582+00');
INSERT INTO noetl.checkpoint OVERRIDING SYSTEM VALUE VALUES (2, 5, 1, 4, 3, 4, 0, '2026-11-22 11:30:52.348586+00');
INSERT INTO noetl.cluster VALUES (true, '8b8342f7-4732-40eb-8e52-cdbdd985c842', 16, 168, '2026-11-22 11:30:50.258238+00');
INSERT INTO noetl.command_20261116_00 VALUES (382855446127321497, 1818369898411865367, 2, 'start', 'default', 0, 'completed', 1, 0, 1, false, '2026-11-22 11:30:51.507649+00', NULL, 'worker-61be3c79f0eb', 0, -1, NULL, 7145445357609446610, 72057594037960706);
INSERT INTO noetl.command_20261116_00 VALUES (382855446262180129, 4849077184010077673, 14, 'start', 'default', 0, 'completed', 1, 0, 2, false, '2026-11-22 11:30:51.662054+00', NULL, 'worker-61be3c79f0eb', 6595881801547211047, 0, '{"v": 1}', 7834819701456471538, 504403158265528323);
INSERT INTO noetl.command_20261116_00 VALUES (382855446262180129, 3985590462968436899, 14, 'start', 'default', 0, 'completed', 1, 0, 3, false, '2026-11-22 11:30:51.66218+00', NULL, 'worker-61be3c79f0eb', 6595881801547211047, 1, '{"v": 2}', 7834819701456471538, 504403158265528324);
INSERT INTO noetl.command_20261116_00 VALUES (382855446127321497, 7248949920767754611, 2, 'each', 'default', 0, 'completed', 1, 0, 4, false, '2026-11-22 11:30:51.728317+00', NULL, 'worker-61be3c79f0eb', 3767080977485723187, 0, '{"v": 1}', 4697039768251395659, 72057594037993477);
INSERT INTO noetl.command_20261116_00 VALUES (382855446127321497, 6356850765893156176, 2, 'each', 'default', 0, 'completed', 1, 0, 5, false, '2026-11-22 11:30:51.728347+00', NULL, 'worker-61be3c79f0eb', 3767080977485723187, 1, '{"v": 2}', 4697039768251395659, 72057594037993478);
INSERT INTO noetl.command_20261116_00 VALUES (382855446127321497, 7416479401531594166, 2, 'each', 'default', 0, 'completed', 1, 0, 6, false, '2026-11-22 11:30:51.728351+00', NULL, 'worker-61be3c79f0eb', 3767080977485723187, 2, '{"v": 3}', 4697039768251395659, 72057594037993479);
INSERT INTO noetl.command_20261116_00 VALUES (382855446127321497, 1384395530746068542, 2, 'each', 'default', 0, 'completed', 1, 0, 7, false, '2026-11-22 11:30:51.728353+00', NULL, 'worker-61be3c79f0eb', 3767080977485723187, 3, '{"v": 4}', 4697039768251395659, 72057594037993480);
INSERT INTO noetl.command_20261116_00 VALUES (382855448169996722, 8630630297025193147, 14, 'start', 'default', 0, 'claimed', 1, 0, 13, false, '2026-11-22 11:30:51.981106+00', '2026-11-22 11:31:07.572736+00', 'worker-61be3c79f0eb', 0, -1, NULL, 1704813330054094932, 504403158265593858);
INSERT INTO noetl.command_20261116_00 VALUES (382855448365104922, 7299603491151163422, 15, 'start', 'default', 0, 'claimed', 1, 0, 14, false, '2026-11-22 11:30:52.022411+00', '2026-11-22 11:31:07.834011+00', 'worker-61be3c79f0eb', 0, -1, NULL, 3143514554091948781, 540431955284492290);
INSERT INTO noetl.command_20261116_00 VALUES (382855446127321497, 7739344024089629612, 2, 'each', 'default', 0, 'completed', 1, 0, 8, false, '2026-11-22 11:30:51.728356+00', NULL, 'worker-61be3c79f0eb', 3767080977485723187, 4, '{"v": 5}', 4697039768251395659, 72057594037993481);
INSERT INTO noetl.command_20261116_00 VALUES (382855446127321497, 8964077418503739022, 2, 'each', 'default', 0, 'pending', 0, 0, NULL, false, '2026-11-22 11:30:52.846067+00', NULL, NULL, 3767080977485723187, 12, '{"v": 13}', 4697039768251395659, 72057594038157313);
INSERT INTO noetl.command_20261116_00 VALUES (382855446127321497, 7448875965360450033, 2, 'each', 'default', 0, 'completed', 1, 0, 9, false, '2026-11-22 11:30:51.728358+00', NULL, 'worker-61be3c79f0eb', 3767080977485723187, 5, '{"v": 6}', 4697039768251395659, 72057594037993482);
INSERT INTO noetl.command_20261116_00 VALUES (382855446127321497, 1120963123422570936, 2, 'each', 'default', 0, 'claimed', 1, 0, 15, false, '2026-11-22 11:30:52.248281+00', '2026-11-22 11:31:07.865392+00', 'worker-61be3c79f0eb', 3767080977485723187, 8, '{"v": 9}', 4697039768251395659, 72057594038026241);
INSERT INTO noetl.command_20261116_00 VALUES (382855446127321497, 99250729003094764, 2, 'each', 'default', 0, 'pending', 0, 0, NULL, false, '2026-11-22 11:30:52.880238+00', NULL, NULL, 3767080977485723187, 13, '{"v": 14}', 4697039768251395659, 72057594038190081);
INSERT INTO noetl.command_20261116_00 VALUES (382855446127321497, 2927831104675727416, 2, 'each', 'default', 0, 'claimed', 1, 0, 16, false, '2026-11-22 11:30:52.282154+00', '2026-11-22 11:31:08.131619+00', 'worker-61be3c79f0eb', 3767080977485723187, 9, '{"v": 10}', 4697039768251395659, 72057594038059009);
INSERT INTO noetl.command_20261116_00 VALUES (382855446127321497, 7556197892418505575, 2, 'each', 'default', 0, 'completed', 1, 0, 10, false, '2026-11-22 11:30:51.728359+00', NULL, 'worker-61be3c79f0eb', 3767080977485723187, 6, '{"v": 7}', 4697039768251395659, 72057594037993483);
INSERT INTO noetl.command_20261116_00 VALUES (382855446127321497, 8432675628507833961, 2, 'each', 'default', 0, 'claimed', 1, 0, 17, false, '2026-11-22 11:30:52.550587+00', '2026-11-22 11:31:08.147957+00', 'worker-61be3c79f0eb', 3767080977485723187, 10, '{"v": 11}', 4697039768251395659, 72057594038091777);
INSERT INTO noetl.command_20261116_00 VALUES (382855447162215880, 2619578589320254235, 5, 'start', 'default', 0, 'failed', 1, 0, 12, false, '2026-11-22 11:30:51.755525+00', NULL, 'worker-61be3c79f0eb', 0, -1, NULL, 5012363616025938212, 180143985094852610);
INSERT INTO noetl.command_20261116_00 VALUES (382855446127321497, 8623031424345560819, 2, 'each', 'default', 0, 'claimed', 1, 0, 18, false, '2026-11-22 11:30:52.572566+00', '2026-11-22 11:31:08.167679+00', 'worker-61be3c79f0eb', 3767080977485723187, 11, '{"v": 12}', 4697039768251395659, 72057594038124545);
INSERT INTO noetl.command_20261116_00 VALUES (382855446127321497, 5694841756351786190, 2, 'each', 'default', 0, 'completed', 1, 0, 11, false, '2026-11-22 11:30:51.728361+00', NULL, 'worker-61be3c79f0eb', 3767080977485723187, 7, '{"v": 8}', 4697039768251395659, 72057594037993484);
INSERT INTO noetl.command_20261116_00 VALUES (382855446127321497, 9202918935755220536, 2, 'each', 'default', 0, 'pending', 0, 0, NULL, false, '2026-11-22 11:30:53.159356+00', NULL, NULL, 3767080977485723187, 14, '{"v": 15}', 4697039768251395659, 72057594038222849);
INSERT INTO noetl.command_20261116_00 VALUES (382855446127321497, 5178131026882580811, 2, 'each', 'default', 0, 'pending', 0, 0, NULL, false, '2026-11-22 11:30:53.210838+00', NULL, NULL, 3767080977485723187, 15, '{"v": 16}', 4697039768251395659, 72057594038255617);
INSERT INTO noetl.command_context_20261116_00 VALUES (382855446127321497, 7145445357609446610, '{"path": "replay/loop", "step": "start", "tasks": [{"kind": "noop", "label": "start"}], "version": 1, "workload": {"v": {"numbers": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}}, "catalog_id": 382855445872905452, "execution_id": 382855446127321497}');
INSERT INTO noetl.command_context_20261116_00 VALUES (382855446262180129, 7834819701456471538, '{"more": true, "path": "replay/parent", "step": "start", "tasks": [{"kind": "python", "input": {"n": "{{ iter.n }}"}, "label": "before", "config": {"code": "result = {''n'': n + 10}"}}], "total": 4, "version": 1, "iterator": "n", "workload": {"v": {"numbers": [1, 2, 3, 4]}}, "catalog_id": 382855446008879441, "is_pipeline": true, "execution_id": 382855446262180129}');
INSERT INTO noetl.command_context_20261116_00 VALUES (382855446127321497, 4697039768251395659, '{"ctx": {"factor": {"v": 3}}, "path": "replay/loop", "step": "each", "tasks": [{"kind": "python", "input": {"n": "{{ iter.n }}", "factor": "{{ ctx.factor }}"}, "label": "each", "config": {"code": "import time\ntime.sleep(0.3)\nresult = {\"product\": n * factor}\n"}}], "total": 20, "version": 1, "iterator": "n", "workload": {"v": {"numbers": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}}, "catalog_id": 382855445872905452, "execution_id": 382855446127321497}');
INSERT INTO noetl.command_context_20261116_00 VALUES (382855447162215880, 5012363616025938212, '{"path": "replay/child", "step": "start", "tasks": [{"kind": "python", "input": {"n": "{{ n }}", "fails": "{{ fails }}"}, "label": "start", "config": {"code": "import time\nif fails:\n    raise ValueError(\"as it was asked to\")\ntime.sleep(1.5)\nresult = {\"doubled\": 2 * n}\n"}}], "version": 1, "workload": {"v": {"n": 1, "fails": true}}, "catalog_id": 382855445939068747, "execution_id": 382855447162215880, "parent_execution_id": 382855446927645675}');
INSERT INTO noetl.command_context_20261116_00 VALUES (382855448169996722, 1704813330054094932, '{"path": "replay/child", "step": "start", "tasks": [{"kind": "python", "input": {"n": "{{ n }}", "fails": "{{ fails }}"}, "label": "start", "config": {"code": "import time\nif fails:\n    raise ValueError(\"as it was asked to\")\ntime.sleep(1.5)\nresult = {\"doubled\": 2 * n}\n"}}], "version": 1, "workload": {"v": {"n": 11, "fails": false}}, "catalog_id": 382855445939068747, "execution_id": 382855448169996722, "parent_execution_id": 382855446262180129}');
INSERT INTO noetl.command_context_20261116_00 VALUES (382855448365104922, 3143514554091948781, '{"path": "replay/child", "step": "start", "tasks": [{"kind": "python", "input": {"n": "{{ n }}", "fails": "{{ fails }}"}, "label": "start", "config": {"code": "import time\nif fails:\n    raise ValueError(\"as it was asked to\")\ntime.sleep(1.5)\nresult = {\"doubled\": 2 * n}\n"}}], "version": 1, "workload": {"v": {"n": 12, "fails": false}}, "catalog_id": 382855445939068747, "execution_id": 382855448365104922, "parent_execution_id": 382855446262180129}');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594037960704, 2, 'playbook.started', NULL, NULL, NULL, NULL, NULL, 'STARTED', '{"status": "STARTED", "context": {"path": "replay/loop", "depth": 0, "version": 1, "workload": {"v": {"numbers": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}}, "catalog_id": 382855445872905452}}', '{"asked": "b788d4493bdd72cf2cd02b9431134584", "nonce": "9f02adcaec462666"}', 'start', 382855445872905452, NULL, NULL, '2026-11-22 11:30:51.466547+00', '2026-11-22 11:30:51.477782+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594037960705, 2, 'step.enter', 'start', NULL, NULL, NULL, NULL, 'STARTED', NULL, NULL, NULL, 382855445872905452, NULL, NULL, '2026-11-22 11:30:51.466547+00', '2026-11-22 11:30:51.506822+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594037960706, 2, 'command.issued', 'start', 1818369898411865367, NULL, NULL, NULL, 'PENDING', NULL, '{"pool": "default", "tool_kind": "noop"}', 'issued:1818369898411865367', 382855445872905452, NULL, NULL, '2026-11-22 11:30:51.466547+00', '2026-11-22 11:30:51.507113+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446262180129, 504403158265528320, 14, 'playbook.started', NULL, NULL, NULL, NULL, NULL, 'STARTED', '{"status": "STARTED", "context": {"path": "replay/parent", "depth": 0, "version": 1, "workload": {"v": {"numbers": [1, 2, 3, 4]}}, "catalog_id": 382855446008879441}}', '{"asked": "8e9fdd4f7d3e2de918d7e0259ea3949c", "nonce": "3cf85fcc7395a8fd"}', 'start', 382855446008879441, NULL, NULL, '2026-11-22 11:30:51.499843+00', '2026-11-22 11:30:51.510432+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446262180129, 504403158265528321, 14, 'step.enter', 'start', NULL, NULL, NULL, NULL, 'STARTED', NULL, NULL, NULL, 382855446008879441, NULL, NULL, '2026-11-22 11:30:51.499843+00', '2026-11-22 11:30:51.661323+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446262180129, 504403158265528322, 14, 'loop.started', 'start', NULL, NULL, 6595881801547211047, NULL, 'STARTED', '{"status": "STARTED", "context": {"mode": "parallel", "size": 4, "items": {"v": [1, 2, 3, 4]}, "context_id": 7834819701456471538, "max_in_flight": 2}}', NULL, NULL, 382855446008879441, NULL, NULL, '2026-11-22 11:30:51.499843+00', '2026-11-22 11:30:51.661625+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446262180129, 504403158265528323, 14, 'command.issued', 'start', 4849077184010077673, NULL, 6595881801547211047, 0, 'PENDING', '{"status": "PENDING", "context": {"more": true, "segment": 0}}', NULL, 'issued:4849077184010077673', 382855446008879441, NULL, NULL, '2026-11-22 11:30:51.499843+00', '2026-11-22 11:30:51.661639+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446262180129, 504403158265528324, 14, 'command.issued', 'start', 3985590462968436899, NULL, 6595881801547211047, 1, 'PENDING', '{"status": "PENDING", "context": {"more": true, "segment": 0}}', NULL, 'issued:3985590462968436899', 382855446008879441, NULL, NULL, '2026-11-22 11:30:51.499843+00', '2026-11-22 11:30:51.661649+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446927645675, 36028797018996736, 1, 'playbook.started', NULL, NULL, NULL, NULL, NULL, 'STARTED', '{"status": "STARTED", "context": {"path": "replay/retry", "depth": 0, "version": 1, "workload": {"v": {}}, "catalog_id": 382855446080433479}}', '{"asked": "3fc5d728613cffe684d28b15ae2ea7f9", "nonce": "6f71de2eb2d7e5b9"}', 'start', 382855446080433479, NULL, NULL, '2026-11-22 11:30:51.657647+00', '2026-11-22 11:30:51.677804+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594037993472, 2, 'command.completed', 'start', 1818369898411865367, 1, NULL, NULL, 'COMPLETED', '{"status": "COMPLETED"}', '{"duration_ms": 4}', 'done:1818369898411865367', 382855445872905452, NULL, 'worker-61be3c79f0eb', '2026-11-22 11:30:51.648+00', '2026-11-22 11:30:51.699735+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446927645675, 36028797018996737, 1, 'step.enter', 'start', NULL, NULL, NULL, NULL, 'STARTED', NULL, NULL, NULL, 382855446080433479, NULL, NULL, '2026-11-22 11:30:51.657647+00', '2026-11-22 11:30:51.718896+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446927645675, 36028797018996738, 1, 'child.started', 'start', 5320134491744227036, NULL, NULL, NULL, 'STARTED', '{"status": "STARTED", "context": {"more": false, "path": "replay/child", "attempt": 1, "segment": 0, "child_id": 382855447162215880}}', NULL, 'issued:5320134491744227036', 382855446080433479, NULL, NULL, '2026-11-22 11:30:51.657647+00', '2026-11-22 11:30:51.718973+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594037993473, 2, 'ctx.updated', 'start', NULL, NULL, NULL, NULL, NULL, '{"status": "OK", "context": {"set": {"factor": {"v": 3}}}}', NULL, NULL, 382855445872905452, NULL, NULL, '2026-11-22 11:30:51.648+00', '2026-11-22 11:30:51.727954+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594037993474, 2, 'step.exit', 'start', NULL, NULL, NULL, NULL, 'COMPLETED', '{"status": "COMPLETED", "context": {"arcs": ["each"], "noop": true}, "reference": {"ref": "noetl://execution/382855446127321497/result/start/0", "kind": "result_ref", "label": "start", "ref_id": 0, "execution_id": 382855446127321497}}', NULL, NULL, 382855445872905452, NULL, NULL, '2026-11-22 11:30:51.648+00', '2026-11-22 11:30:51.728048+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594037993475, 2, 'step.enter', 'each', NULL, NULL, NULL, NULL, 'STARTED', NULL, NULL, NULL, 382855445872905452, NULL, NULL, '2026-11-22 11:30:51.648+00', '2026-11-22 11:30:51.728056+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594037993476, 2, 'loop.started', 'each', NULL, NULL, 3767080977485723187, NULL, 'STARTED', '{"status": "STARTED", "context": {"mode": "parallel", "size": 20, "items": {"v": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}, "context_id": 4697039768251395659, "max_in_flight": 8}}', NULL, NULL, 382855445872905452, NULL, NULL, '2026-11-22 11:30:51.648+00', '2026-11-22 11:30:51.728058+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594037993477, 2, 'command.issued', 'each', 7248949920767754611, NULL, 3767080977485723187, 0, 'PENDING', NULL, NULL, 'issued:7248949920767754611', 382855445872905452, NULL, NULL, '2026-11-22 11:30:51.648+00', '2026-11-22 11:30:51.728064+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594037993478, 2, 'command.issued', 'each', 6356850765893156176, NULL, 3767080977485723187, 1, 'PENDING', NULL, NULL, 'issued:6356850765893156176', 382855445872905452, NULL, NULL, '2026-11-22 11:30:51.648+00', '2026-11-22 11:30:51.72807+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594037993479, 2, 'command.issued', 'each', 7416479401531594166, NULL, 3767080977485723187, 2, 'PENDING', NULL, NULL, 'issued:7416479401531594166', 382855445872905452, NULL, NULL, '2026-11-22 11:30:51.648+00', '2026-11-22 11:30:51.728073+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594037993480, 2, 'command.issued', 'each', 1384395530746068542, NULL, 3767080977485723187, 3, 'PENDING', NULL, NULL, 'issued:1384395530746068542', 382855445872905452, NULL, NULL, '2026-11-22 11:30:51.648+00', '2026-11-22 11:30:51.728075+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594037993481, 2, 'command.issued', 'each', 7739344024089629612, NULL, 3767080977485723187, 4, 'PENDING', NULL, NULL, 'issued:7739344024089629612', 382855445872905452, NULL, NULL, '2026-11-22 11:30:51.648+00', '2026-11-22 11:30:51.728077+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594037993482, 2, 'command.issued', 'each', 7448875965360450033, NULL, 3767080977485723187, 5, 'PENDING', NULL, NULL, 'issued:7448875965360450033', 382855445872905452, NULL, NULL, '2026-11-22 11:30:51.648+00', '2026-11-22 11:30:51.728079+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594037993483, 2, 'command.issued', 'each', 7556197892418505575, NULL, 3767080977485723187, 6, 'PENDING', NULL, NULL, 'issued:7556197892418505575', 382855445872905452, NULL, NULL, '2026-11-22 11:30:51.648+00', '2026-11-22 11:30:51.728081+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594037993484, 2, 'command.issued', 'each', 5694841756351786190, NULL, 3767080977485723187, 7, 'PENDING', NULL, NULL, 'issued:5694841756351786190', 382855445872905452, NULL, NULL, '2026-11-22 11:30:51.648+00', '2026-11-22 11:30:51.728083+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855447162215880, 180143985094852608, 5, 'playbook.started', NULL, NULL, NULL, NULL, NULL, 'STARTED', '{"status": "STARTED", "context": {"path": "replay/child", "depth": 1, "parent": {"step": "start", "command_id": 5320134491744227036, "iter_index": -1, "loop_epoch": 0}, "version": 1, "workload": {"v": {"n": 1, "fails": true}}}}', NULL, 'start', 382855445939068747, 382855446927645675, NULL, '2026-11-22 11:30:51.657647+00', '2026-11-22 11:30:51.731564+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855447162215880, 180143985094852609, 5, 'step.enter', 'start', NULL, NULL, NULL, NULL, 'STARTED', NULL, NULL, NULL, 382855445939068747, 382855446927645675, NULL, '2026-11-22 11:30:51.657647+00', '2026-11-22 11:30:51.755247+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855447162215880, 180143985094852610, 5, 'command.issued', 'start', 2619578589320254235, NULL, NULL, NULL, 'PENDING', NULL, '{"pool": "default", "tool_kind": "python"}', 'issued:2619578589320254235', 382855445939068747, 382855446927645675, NULL, '2026-11-22 11:30:51.657647+00', '2026-11-22 11:30:51.755333+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446262180129, 504403158265561088, 14, 'command.completed', 'start', 4849077184010077673, 1, 6595881801547211047, 0, 'COMPLETED', '{"status": "COMPLETED", "reference": {"ref": "noetl://execution/382855446262180129/result/start/6835312448058114463", "kind": "result_ref", "bytes": 19, "label": "start", "shape": "pipeline", "ref_id": 6835312448058114463, "sha256": "01879defa795be5fe23f926613a09476077e3a6ebbbf2e358f6e08154dd164c8", "execution_id": 382855446262180129}}', '{"duration_ms": 204}', 'done:4849077184010077673', 382855446008879441, NULL, 'worker-61be3c79f0eb', '2026-11-22 11:30:51.913+00', '2026-11-22 11:30:51.940234+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446262180129, 504403158265561089, 14, 'child.started', 'start', 3655492856036633067, NULL, 6595881801547211047, 0, 'STARTED', '{"status": "STARTED", "context": {"more": true, "path": "replay/child", "prior": {"ref": "noetl://execution/382855446262180129/result/start/6835312448058114463", "kind": "result_ref", "bytes": 19, "label": "start", "shape": "pipeline", "ref_id": 6835312448058114463, "sha256": "01879defa795be5fe23f926613a09476077e3a6ebbbf2e358f6e08154dd164c8", "execution_id": 382855446262180129}, "attempt": 1, "segment": 1, "child_id": 382855448169996722}}', NULL, 'issued:3655492856036633067', 382855446008879441, NULL, NULL, '2026-11-22 11:30:51.913+00', '2026-11-22 11:30:51.955982+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855448169996722, 504403158265593857, 14, 'step.enter', 'start', NULL, NULL, NULL, NULL, 'STARTED', NULL, NULL, NULL, 382855445939068747, 382855446262180129, NULL, '2026-11-22 11:30:51.913+00', '2026-11-22 11:30:51.98015+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855448169996722, 504403158265593858, 14, 'command.issued', 'start', 8630630297025193147, NULL, NULL, NULL, 'PENDING', NULL, '{"pool": "default", "tool_kind": "python"}', 'issued:8630630297025193147', 382855445939068747, 382855446262180129, NULL, '2026-11-22 11:30:51.913+00', '2026-11-22 11:30:51.980247+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855448169996722, 504403158265593856, 14, 'playbook.started', NULL, NULL, NULL, NULL, NULL, 'STARTED', '{"status": "STARTED", "context": {"path": "replay/child", "depth": 1, "parent": {"step": "start", "command_id": 3655492856036633067, "iter_index": 0, "loop_epoch": 6595881801547211047}, "version": 1, "workload": {"v": {"n": 11, "fails": false}}}}', NULL, 'start', 382855445939068747, 382855446262180129, NULL, '2026-11-22 11:30:51.913+00', '2026-11-22 11:30:51.961404+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594038091777, 2, 'command.issued', 'each', 8432675628507833961, NULL, 3767080977485723187, 10, 'PENDING', NULL, NULL, 'issued:8432675628507833961', 382855445872905452, NULL, NULL, '2026-11-22 11:30:52.522+00', '2026-11-22 11:30:52.550162+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594038124545, 2, 'command.issued', 'each', 8623031424345560819, NULL, 3767080977485723187, 11, 'PENDING', NULL, NULL, 'issued:8623031424345560819', 382855445872905452, NULL, NULL, '2026-11-22 11:30:52.553+00', '2026-11-22 11:30:52.572371+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446927645675, 36028797019029505, 1, 'task.ended', 'start', NULL, NULL, NULL, NULL, 'RETRYING', '{"status": "RETRYING", "context": {"attempt": 2, "timer_id": 6557224811850239250}}', NULL, NULL, 382855446080433479, NULL, NULL, '2026-11-22 11:30:53.133+00', '2026-11-22 11:30:53.210945+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446262180129, 504403158265626624, 14, 'command.completed', 'start', 3985590462968436899, 1, 6595881801547211047, 1, 'COMPLETED', '{"status": "COMPLETED", "reference": {"ref": "noetl://execution/382855446262180129/result/start/1685580073676499949", "kind": "result_ref", "bytes": 19, "label": "start", "shape": "pipeline", "ref_id": 1685580073676499949, "sha256": "8aa49fcda79fa32619abc1827895573fa35bbecbf8b7d54e0e93dc985e5336b4", "execution_id": 382855446262180129}}', '{"duration_ms": 184}', 'done:3985590462968436899', 382855446008879441, NULL, 'worker-61be3c79f0eb', '2026-11-22 11:30:51.948+00', '2026-11-22 11:30:51.982344+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594038091776, 2, 'command.completed', 'each', 7416479401531594166, 1, 3767080977485723187, 2, 'COMPLETED', '{"status": "COMPLETED", "reference": {"ref": "noetl://execution/382855446127321497/result/each/2976435063249435635", "kind": "result_ref", "bytes": 13, "label": "each", "ref_id": 2976435063249435635, "sha256": "21d8007cad8652bcb8be93d131148432be92f2b4544c589e65f3c527f7fbd981", "execution_id": 382855446127321497}}', '{"duration_ms": 704}', 'done:7416479401531594166', 382855445872905452, NULL, 'worker-61be3c79f0eb', '2026-11-22 11:30:52.522+00', '2026-11-22 11:30:52.541862+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594038124544, 2, 'command.completed', 'each', 1384395530746068542, 1, 3767080977485723187, 3, 'COMPLETED', '{"status": "COMPLETED", "reference": {"ref": "noetl://execution/382855446127321497/result/each/5916021521512647476", "kind": "result_ref", "bytes": 14, "label": "each", "ref_id": 5916021521512647476, "sha256": "8addb9c319f9a740b057e738c60d599e3b8f86f294e875ed94a80136020bb817", "execution_id": 382855446127321497}}', '{"duration_ms": 734}', 'done:1384395530746068542', 382855445872905452, NULL, 'worker-61be3c79f0eb', '2026-11-22 11:30:52.553+00', '2026-11-22 11:30:52.566211+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594038190080, 2, 'command.completed', 'each', 7448875965360450033, 1, 3767080977485723187, 5, 'COMPLETED', '{"status": "COMPLETED", "reference": {"ref": "noetl://execution/382855446127321497/result/each/6564052365327708633", "kind": "result_ref", "bytes": 14, "label": "each", "ref_id": 6564052365327708633, "sha256": "e520d3a2626163dfb3c660b0ba5296e0a57f5ece1d67f00afa518b5a190a9e21", "execution_id": 382855446127321497}}', '{"duration_ms": 879}', 'done:7448875965360450033', 382855445872905452, NULL, 'worker-61be3c79f0eb', '2026-11-22 11:30:52.857+00', '2026-11-22 11:30:52.87146+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446262180129, 504403158265626625, 14, 'child.started', 'start', 8851424645147381012, NULL, 6595881801547211047, 1, 'STARTED', '{"status": "STARTED", "context": {"more": true, "path": "replay/child", "prior": {"ref": "noetl://execution/382855446262180129/result/start/1685580073676499949", "kind": "result_ref", "bytes": 19, "label": "start", "shape": "pipeline", "ref_id": 1685580073676499949, "sha256": "8aa49fcda79fa32619abc1827895573fa35bbecbf8b7d54e0e93dc985e5336b4", "execution_id": 382855446262180129}, "attempt": 1, "segment": 1, "child_id": 382855448365104922}}', NULL, 'issued:8851424645147381012', 382855446008879441, NULL, NULL, '2026-11-22 11:30:51.948+00', '2026-11-22 11:30:52.005783+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855448365104922, 540431955284492288, 15, 'playbook.started', NULL, NULL, NULL, NULL, NULL, 'STARTED', '{"status": "STARTED", "context": {"path": "replay/child", "depth": 1, "parent": {"step": "start", "command_id": 8851424645147381012, "iter_index": 1, "loop_epoch": 6595881801547211047}, "version": 1, "workload": {"v": {"n": 12, "fails": false}}}}', NULL, 'start', 382855445939068747, 382855446262180129, NULL, '2026-11-22 11:30:51.948+00', '2026-11-22 11:30:52.014165+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855448365104922, 540431955284492289, 15, 'step.enter', 'start', NULL, NULL, NULL, NULL, 'STARTED', NULL, NULL, NULL, 382855445939068747, 382855446262180129, NULL, '2026-11-22 11:30:51.948+00', '2026-11-22 11:30:52.022094+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855448365104922, 540431955284492290, 15, 'command.issued', 'start', 7299603491151163422, NULL, NULL, NULL, 'PENDING', NULL, '{"pool": "default", "tool_kind": "python"}', 'issued:7299603491151163422', 382855445939068747, 382855446262180129, NULL, '2026-11-22 11:30:51.948+00', '2026-11-22 11:30:52.022219+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594038026241, 2, 'command.issued', 'each', 1120963123422570936, NULL, 3767080977485723187, 8, 'PENDING', NULL, NULL, 'issued:1120963123422570936', 382855445872905452, NULL, NULL, '2026-11-22 11:30:52.217+00', '2026-11-22 11:30:52.248058+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594038059009, 2, 'command.issued', 'each', 2927831104675727416, NULL, 3767080977485723187, 9, 'PENDING', NULL, NULL, 'issued:2927831104675727416', 382855445872905452, NULL, NULL, '2026-11-22 11:30:52.249+00', '2026-11-22 11:30:52.28057+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594038026240, 2, 'command.completed', 'each', 7248949920767754611, 1, 3767080977485723187, 0, 'COMPLETED', '{"status": "COMPLETED", "reference": {"ref": "noetl://execution/382855446127321497/result/each/7983323610068677334", "kind": "result_ref", "bytes": 13, "label": "each", "ref_id": 7983323610068677334, "sha256": "e1d7eae4b9b7bd4453383627332e69f80856078231ecaa5eb8dcfa5b98c5b2f4", "execution_id": 382855446127321497}}', '{"duration_ms": 405}', 'done:7248949920767754611', 382855445872905452, NULL, 'worker-61be3c79f0eb', '2026-11-22 11:30:52.217+00', '2026-11-22 11:30:52.231524+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594038157312, 2, 'command.completed', 'each', 7739344024089629612, 1, 3767080977485723187, 4, 'COMPLETED', '{"status": "COMPLETED", "reference": {"ref": "noetl://execution/382855446127321497/result/each/8924859055216343353", "kind": "result_ref", "bytes": 14, "label": "each", "ref_id": 8924859055216343353, "sha256": "cf6ce80ca6c6dc9713503eded2c53cdc91460b0bd97c0beb075c7f4cb003d69e", "execution_id": 382855446127321497}}', '{"duration_ms": 878}', 'done:7739344024089629612', 382855445872905452, NULL, 'worker-61be3c79f0eb', '2026-11-22 11:30:52.824+00', '2026-11-22 11:30:52.838869+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855447162215880, 180143985094885376, 5, 'command.failed', 'start', 2619578589320254235, 1, NULL, NULL, 'FAILED', '{"error": {"code": "TOOL_EXCEPTION", "kind": "exception", "line": 3, "step": "start", "task": "start", "message": "ValueError: as it was asked to", "exception": "ValueError", "retryable": false}, "status": "FAILED"}', '{"duration_ms": 572}', 'done:2619578589320254235', 382855445939068747, 382855446927645675, 'worker-61be3c79f0eb', '2026-11-22 11:30:53.133+00', '2026-11-22 11:30:53.169317+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594038059008, 2, 'command.completed', 'each', 6356850765893156176, 1, 3767080977485723187, 1, 'COMPLETED', '{"status": "COMPLETED", "reference": {"ref": "noetl://execution/382855446127321497/result/each/85898779939650065", "kind": "result_ref", "bytes": 13, "label": "each", "ref_id": 85898779939650065, "sha256": "50d1cf2bfffe543934cd0ccc0d3a8c28489f7077e03514ba87464865f5a4d8b1", "execution_id": 382855446127321497}}', '{"duration_ms": 431}', 'done:6356850765893156176', 382855445872905452, NULL, 'worker-61be3c79f0eb', '2026-11-22 11:30:52.249+00', '2026-11-22 11:30:52.263893+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594038222848, 2, 'command.completed', 'each', 7556197892418505575, 1, 3767080977485723187, 6, 'COMPLETED', '{"status": "COMPLETED", "reference": {"ref": "noetl://execution/382855446127321497/result/each/1761770559451073753", "kind": "result_ref", "bytes": 14, "label": "each", "ref_id": 1761770559451073753, "sha256": "c66ea39f9003d336a7fdce43769b2c9778be5f3005a28bbb6d8a1a2c6148d839", "execution_id": 382855446127321497}}', '{"duration_ms": 888}', 'done:7556197892418505575', 382855445872905452, NULL, 'worker-61be3c79f0eb', '2026-11-22 11:30:53.126+00', '2026-11-22 11:30:53.140615+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594038255616, 2, 'command.completed', 'each', 5694841756351786190, 1, 3767080977485723187, 7, 'COMPLETED', '{"status": "COMPLETED", "reference": {"ref": "noetl://execution/382855446127321497/result/each/8156791739911286898", "kind": "result_ref", "bytes": 14, "label": "each", "ref_id": 8156791739911286898, "sha256": "52bd0f85713531a1bdafca6f3c26679d6a2c2e411d9167f5652f88bcaae4b9ac", "execution_id": 382855446127321497}}', '{"duration_ms": 885}', 'done:5694841756351786190', 382855445872905452, NULL, 'worker-61be3c79f0eb', '2026-11-22 11:30:53.162+00', '2026-11-22 11:30:53.194532+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594038157313, 2, 'command.issued', 'each', 8964077418503739022, NULL, 3767080977485723187, 12, 'PENDING', NULL, NULL, 'issued:8964077418503739022', 382855445872905452, NULL, NULL, '2026-11-22 11:30:52.824+00', '2026-11-22 11:30:52.845766+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594038190081, 2, 'command.issued', 'each', 99250729003094764, NULL, 3767080977485723187, 13, 'PENDING', NULL, NULL, 'issued:99250729003094764', 382855445872905452, NULL, NULL, '2026-11-22 11:30:52.857+00', '2026-11-22 11:30:52.88002+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594038222849, 2, 'command.issued', 'each', 9202918935755220536, NULL, 3767080977485723187, 14, 'PENDING', NULL, NULL, 'issued:9202918935755220536', 382855445872905452, NULL, NULL, '2026-11-22 11:30:53.126+00', '2026-11-22 11:30:53.158997+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855447162215880, 180143985094885377, 5, 'step.exit', 'start', NULL, NULL, NULL, NULL, 'FAILED', '{"error": {"code": "TOOL_EXCEPTION", "kind": "exception", "line": 3, "step": "start", "task": "start", "message": "ValueError: as it was asked to", "exception": "ValueError", "retryable": false}, "status": "FAILED"}', NULL, NULL, 382855445939068747, 382855446927645675, NULL, '2026-11-22 11:30:53.133+00', '2026-11-22 11:30:53.185098+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855447162215880, 180143985094885378, 5, 'playbook.failed', NULL, NULL, NULL, NULL, NULL, 'FAILED', '{"error": {"code": "TOOL_EXCEPTION", "kind": "exception", "line": 3, "step": "start", "task": "start", "message": "ValueError: as it was asked to", "exception": "ValueError", "retryable": false}, "status": "FAILED"}', NULL, 'end', 382855445939068747, 382855446927645675, NULL, '2026-11-22 11:30:53.133+00', '2026-11-22 11:30:53.185202+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446927645675, 36028797019029504, 1, 'child.ended', 'start', 5320134491744227036, NULL, NULL, NULL, 'FAILED', '{"error": {"code": "TOOL_EXCEPTION", "kind": "exception", "line": 3, "step": "start", "task": "start", "message": "ValueError: as it was asked to", "exception": "ValueError", "retryable": false}, "status": "FAILED", "context": {"status": "FAILED"}}', NULL, 'child:382855447162215880', 382855446080433479, NULL, NULL, '2026-11-22 11:30:53.133+00', '2026-11-22 11:30:53.190646+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855446127321497, 72057594038255617, 2, 'command.issued', 'each', 5178131026882580811, NULL, 3767080977485723187, 15, 'PENDING', NULL, NULL, 'issued:5178131026882580811', 382855445872905452, NULL, NULL, '2026-11-22 11:30:53.162+00', '2026-11-22 11:30:53.210654+00');
INSERT INTO noetl.execution VALUES (382855446927645675, 1, 382855446080433479, 'replay/retry', 1, NULL, NULL, NULL, '2026-11-22 11:30:51.669664+00', 'RUNNING', 'start', '{"steps": {"start": {"items": null, "status": "running", "entered": 1, "attempts": 1, "ended_at": null, "started_at": "2026-11-22T11:30:51.657647+00:00"}}, "counts": {"commands_failed": 0, "commands_issued": 0, "children_started": 1, "commands_cancelled": 0, "commands_completed": 0}}', NULL, NULL, NULL, 36028797018996738, '2026-11-22 11:30:51.849911+00');
INSERT INTO noetl.execution VALUES (382855446127321497, 2, 382855445872905452, 'replay/loop', 1, NULL, NULL, NULL, '2026-11-22 11:30:51.473681+00', 'RUNNING', 'each', '{"steps": {"each": {"items": {"done": 7, "total": 20, "failed": 0}, "status": "running", "entered": 1, "attempts": 1, "ended_at": null, "started_at": "2026-11-22T11:30:51.648000+00:00"}, "start": {"items": null, "status": "completed", "entered": 1, "attempts": 1, "ended_at": "2026-11-22T11:30:51.648000+00:00", "started_at": "2026-11-22T11:30:51.466547+00:00"}}, "counts": {"commands_failed": 0, "commands_issued": 16, "children_started": 0, "commands_cancelled": 0, "commands_completed": 8}}', NULL, NULL, NULL, 72057594038222849, '2026-11-22 11:30:53.190989+00');
INSERT INTO noetl.execution VALUES (382855447162215880, 5, 382855445939068747, 'replay/child', 1, 382855446927645675, 5320134491744227036, NULL, '2026-11-22 11:30:51.718524+00', 'RUNNING', 'start', '{"steps": {"start": {"items": null, "status": "running", "entered": 1, "attempts": 1, "ended_at": null, "started_at": "2026-11-22T11:30:51.657647+00:00"}}, "counts": {"commands_failed": 0, "commands_issued": 1, "children_started": 0, "commands_cancelled": 0, "commands_completed": 0}}', NULL, NULL, NULL, 180143985094852610, '2026-11-22 11:30:51.895152+00');
INSERT INTO noetl.execution VALUES (382855446262180129, 14, 382855446008879441, 'replay/parent', 1, NULL, NULL, NULL, '2026-11-22 11:30:51.508588+00', 'RUNNING', 'start', '{"steps": {"start": {"items": {"done": 0, "total": 4, "failed": 0}, "status": "running", "entered": 1, "attempts": 1, "ended_at": null, "started_at": "2026-11-22T11:30:51.499843+00:00"}}, "counts": {"commands_failed": 0, "commands_issued": 2, "children_started": 2, "commands_cancelled": 0, "commands_completed": 2}}', NULL, NULL, NULL, 504403158265626625, '2026-11-22 11:30:52.094443+00');
INSERT INTO noetl.execution VALUES (382855448169996722, 14, 382855445939068747, 'replay/child', 1, 382855446262180129, 3655492856036633067, NULL, '2026-11-22 11:30:51.955712+00', 'RUNNING', 'start', '{"steps": {"start": {"items": null, "status": "running", "entered": 1, "attempts": 1, "ended_at": null, "started_at": "2026-11-22T11:30:51.913000+00:00"}}, "counts": {"commands_failed": 0, "commands_issued": 1, "children_started": 0, "commands_cancelled": 0, "commands_completed": 0}}', NULL, NULL, NULL, 504403158265593858, '2026-11-22 11:30:52.094469+00');
INSERT INTO noetl.execution VALUES (382855448365104922, 15, 382855445939068747, 'replay/child', 1, 382855446262180129, 8851424645147381012, NULL, '2026-11-22 11:30:52.005512+00', 'RUNNING', 'start', '{"steps": {"start": {"items": null, "status": "running", "entered": 1, "attempts": 1, "ended_at": null, "started_at": "2026-11-22T11:30:51.948000+00:00"}}, "counts": {"commands_failed": 0, "commands_issued": 1, "children_started": 0, "commands_cancelled": 0, "commands_completed": 0}}', NULL, NULL, NULL, 540431955284492290, '2026-11-22 11:30:52.105465+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 0, 'ingest-c3f2e679c869', 1, '2026-11-22 11:30:56.416738+00', '2026-11-22 11:30:52.416739+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 1, 'ingest-c3f2e679c869', 1, '2026-11-22 11:30:56.416817+00', '2026-11-22 11:30:52.416817+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 2, 'ingest-c3f2e679c869', 1, '2026-11-22 11:30:56.416821+00', '2026-11-22 11:30:52.416821+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 3, 'ingest-c3f2e679c869', 1, '2026-11-22 11:30:56.416822+00', '2026-11-22 11:30:52.416823+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 4, 'ingest-c3f2e679c869', 1, '2026-11-22 11:30:56.416824+00', '2026-11-22 11:30:52.416824+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 5, 'ingest-c3f2e679c869', 1, '2026-11-22 11:30:56.416826+00', '2026-11-22 11:30:52.416826+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 6, 'ingest-c3f2e679c869', 1, '2026-11-22 11:30:56.416827+00', '2026-11-22 11:30:52.416827+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 7, 'ingest-c3f2e679c869', 1, '2026-11-22 11:30:56.416828+00', '2026-11-22 11:30:52.416828+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 8, 'ingest-c3f2e679c869', 1, '2026-11-22 11:30:56.416829+00', '2026-11-22 11:30:52.416829+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 9, 'ingest-c3f2e679c869', 1, '2026-11-22 11:30:56.416831+00', '2026-11-22 11:30:52.416831+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 10, 'ingest-c3f2e679c869', 1, '2026-11-22 11:30:56.416832+00', '2026-11-22 11:30:52.416832+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 11, 'ingest-c3f2e679c869', 1, '2026-11-22 11:30:56.416833+00', '2026-11-22 11:30:52.416833+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 12, 'ingest-c3f2e679c869', 1, '2026-11-22 11:30:56.416834+00', '2026-11-22 11:30:52.416834+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 0, 'compute-753486c3f8f9', 1, '2026-11-22 11:30:57.087554+00', '2026-11-22 11:30:53.087555+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 1, 'compute-753486c3f8f9', 1, '2026-11-22 11:30:57.087582+00', '2026-11-22 11:30:53.087582+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 13, 'ingest-c3f2e679c869', 1, '2026-11-22 11:30:56.416837+00', '2026-11-22 11:30:52.416837+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 14, 'ingest-c3f2e679c869', 1, '2026-11-22 11:30:56.416839+00', '2026-11-22 11:30:52.416839+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 15, 'ingest-c3f2e679c869', 1, '2026-11-22 11:30:56.41684+00', '2026-11-22 11:30:52.41684+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 2, 'compute-753486c3f8f9', 1, '2026-11-22 11:30:57.087586+00', '2026-11-22 11:30:53.087586+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 3, 'compute-753486c3f8f9', 1, '2026-11-22 11:30:57.087588+00', '2026-11-22 11:30:53.087588+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 4, 'compute-753486c3f8f9', 1, '2026-11-22 11:30:57.087589+00', '2026-11-22 11:30:53.087589+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 5, 'compute-753486c3f8f9', 1, '2026-11-22 11:30:57.087591+00', '2026-11-22 11:30:53.087591+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 6, 'compute-753486c3f8f9', 1, '2026-11-22 11:30:57.087592+00', '2026-11-22 11:30:53.087592+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 7, 'compute-753486c3f8f9', 1, '2026-11-22 11:30:57.087593+00', '2026-11-22 11:30:53.087593+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 8, 'compute-753486c3f8f9', 1, '2026-11-22 11:30:57.087594+00', '2026-11-22 11:30:53.087594+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 9, 'compute-753486c3f8f9', 1, '2026-11-22 11:30:57.087595+00', '2026-11-22 11:30:53.087595+00');
INSERT INTO noetl.execution_shard VALUES ('meta', 0, 'meta-915e9e065fe7', 1, '2026-11-22 11:30:56.418047+00', '2026-11-22 11:30:52.418047+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 10, 'compute-753486c3f8f9', 1, '2026-11-22 11:30:57.087599+00', '2026-11-22 11:30:53.087599+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 11, 'compute-753486c3f8f9', 1, '2026-11-22 11:30:57.087601+00', '2026-11-22 11:30:53.087601+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 12, 'compute-753486c3f8f9', 1, '2026-11-22 11:30:57.087602+00', '2026-11-22 11:30:53.087602+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 13, 'compute-753486c3f8f9', 1, '2026-11-22 11:30:57.087603+00', '2026-11-22 11:30:53.087604+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 14, 'compute-753486c3f8f9', 1, '2026-11-22 11:30:57.087605+00', '2026-11-22 11:30:53.087605+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 15, 'compute-753486c3f8f9', 1, '2026-11-22 11:30:57.087606+00', '2026-11-22 11:30:53.087606+00');
INSERT INTO noetl.execution_state VALUES (382855446127321497, 2, 72057594038255617, '{"ctx": {"factor": {"v": 3}}, "path": "replay/loop", "active": {"each": {"loop": {"done": 8, "open": [8, 9, 10, 11, 12, 13, 14, 15], "size": 20, "epoch": 3767080977485723187, "items": {"v": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}, "context_id": 4697039768251395659, "issued_upto": 16, "max_in_flight": 8}, "cause": 72057594037993474, "activity": {}}}, "visits": {"each": 1, "start": 1}, "results": {"start": {"label": "start", "ref_id": 0, "execution_id": 382855446127321497}}, "started": true, "version": 1, "workload": {"v": {"numbers": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}}, "catalog_id": 382855445872905452, "execution_id": 382855446127321497, "last_event_id": 72057594038255617, "commands_issued": 17}');
INSERT INTO noetl.execution_state VALUES (382855446262180129, 14, 504403158265626625, '{"path": "replay/parent", "active": {"start": {"loop": {"open": [0, 1], "size": 4, "epoch": 6595881801547211047, "items": {"v": [1, 2, 3, 4]}, "children": {"0": {"more": true, "prior": {"bytes": 19, "label": "start", "shape": "pipeline", "ref_id": 6835312448058114463, "sha256": "01879defa795be5fe23f926613a09476077e3a6ebbbf2e358f6e08154dd164c8", "execution_id": 382855446262180129}, "segment": 1, "child_id": 382855448169996722, "command_id": 3655492856036633067}, "1": {"more": true, "prior": {"bytes": 19, "label": "start", "shape": "pipeline", "ref_id": 1685580073676499949, "sha256": "8aa49fcda79fa32619abc1827895573fa35bbecbf8b7d54e0e93dc985e5336b4", "execution_id": 382855446262180129}, "segment": 1, "child_id": 382855448365104922, "command_id": 8851424645147381012}}, "context_id": 7834819701456471538, "issued_upto": 2, "max_in_flight": 2}, "cause": 504403158265528321, "activity": {}}}, "visits": {"start": 1}, "started": true, "version": 1, "workload": {"v": {"numbers": [1, 2, 3, 4]}}, "catalog_id": 382855446008879441, "execution_id": 382855446262180129, "last_event_id": 504403158265626625, "commands_issued": 2}');
INSERT INTO noetl.execution_state VALUES (382855446927645675, 1, 36028797019029505, '{"path": "replay/retry", "active": {"start": {"cause": 36028797018996737, "activity": {"attempt": 2, "timer_id": 6557224811850239250}}}, "visits": {"start": 1}, "started": true, "version": 1, "workload": {"v": {}}, "catalog_id": 382855446080433479, "execution_id": 382855446927645675, "last_event_id": 36028797019029505}');
INSERT INTO noetl.execution_state VALUES (382855448169996722, 14, 504403158265593858, '{"path": "replay/child", "depth": 1, "active": {"start": {"cause": 504403158265593857, "activity": {"command_id": 8630630297025193147}}}, "visits": {"start": 1}, "started": true, "version": 1, "workload": {"v": {"n": 11, "fails": false}}, "catalog_id": 382855445939068747, "execution_id": 382855448169996722, "parent_place": {"step": "start", "command_id": 3655492856036633067, "iter_index": 0, "loop_epoch": 6595881801547211047}, "last_event_id": 504403158265593858, "commands_issued": 1, "parent_execution_id": 382855446262180129}');
INSERT INTO noetl.execution_state VALUES (382855447162215880, 5, 180143985094885378, '{"path": "replay/child", "depth": 1, "status": "FAILED", "visits": {"start": 1}, "failure": {"code": "TOOL_EXCEPTION", "kind": "exception", "line": 3, "step": "start", "task": "start", "message": "ValueError: as it was asked to", "exception": "ValueError", "retryable": false}, "started": true, "version": 1, "workload": {"v": {"n": 1, "fails": true}}, "catalog_id": 382855445939068747, "execution_id": 382855447162215880, "parent_place": {"step": "start", "command_id": 5320134491744227036, "iter_index": -1, "loop_epoch": 0}, "last_event_id": 180143985094885378, "commands_issued": 1, "parent_execution_id": 382855446927645675}');
INSERT INTO noetl.execution_state VALUES (382855448365104922, 15, 540431955284492290, '{"path": "replay/child", "depth": 1, "active": {"start": {"cause": 540431955284492289, "activity": {"command_id": 7299603491151163422}}}, "visits": {"start": 1}, "started": true, "version": 1, "workload": {"v": {"n": 12, "fails": false}}, "catalog_id": 382855445939068747, "execution_id": 382855448365104922, "parent_place": {"step": "start", "command_id": 8851424645147381012, "iter_index": 1, "loop_epoch": 6595881801547211047}, "last_event_id": 540431955284492290, "commands_issued": 1, "parent_execution_id": 382855446262180129}');
INSERT INTO noetl.migration VALUES ('0001_pre_schema.sql', '2026-11-22 11:30:49.740349+00');
INSERT INTO noetl.projection_checkpoint VALUES (1, 1, 36028797019029503, '2026-11-22 11:30:51.849159+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (3, 1, 108086391056924671, '2026-11-22 11:30:50.714885+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (4, 1, 144115188075888639, '2026-11-22 11:30:50.73982+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (0, 1, 32767, '2026-11-22 11:30:50.520065+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (6, 1, 216172782113816575, '2026-11-22 11:30:50.774036+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (7, 1, 252201579132780543, '2026-11-22 11:30:50.80056+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (8, 1, 288230376151744511, '2026-11-22 11:30:50.943589+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (9, 1, 324259173170708479, '2026-11-22 11:30:50.965951+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (10, 1, 360287970189672447, '2026-11-22 11:30:50.987063+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (2, 1, 72057594038255615, '2026-11-22 11:30:53.182174+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (5, 1, 180143985094885375, '2026-11-22 11:30:51.883562+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (13, 1, 468374361246564351, '2026-11-22 11:30:51.099489+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (11, 1, 396316767208636415, '2026-11-22 11:30:51.026381+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (12, 1, 432345564227600383, '2026-11-22 11:30:51.087608+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (14, 1, 504403158265659391, '2026-11-22 11:30:52.090543+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (15, 1, 540431955284525055, '2026-11-22 11:30:52.103975+00', 0);
INSERT INTO noetl.projection_state VALUES (382855446927645675, 36028797018996738, '{"path": "replay/retry", "active": {"start": {"cause": 36028797018996737, "activity": {"child_id": 382855447162215880, "command_id": 5320134491744227036}}}, "visits": {"start": 1}, "started": true, "version": 1, "workload": {"v": {}}, "catalog_id": 382855446080433479, "execution_id": 382855446927645675, "last_event_id": 36028797018996738}');
INSERT INTO noetl.projection_state VALUES (382855446127321497, 72057594038222849, '{"ctx": {"factor": {"v": 3}}, "path": "replay/loop", "active": {"each": {"loop": {"done": 7, "open": [7, 8, 9, 10, 11, 12, 13, 14], "size": 20, "epoch": 3767080977485723187, "items": {"v": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}, "context_id": 4697039768251395659, "issued_upto": 15, "max_in_flight": 8}, "cause": 72057594037993474, "activity": {}}}, "visits": {"each": 1, "start": 1}, "results": {"start": {"label": "start", "ref_id": 0, "execution_id": 382855446127321497}}, "started": true, "version": 1, "workload": {"v": {"numbers": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}}, "catalog_id": 382855445872905452, "execution_id": 382855446127321497, "last_event_id": 72057594038222849, "commands_issued": 16}');
INSERT INTO noetl.projection_state VALUES (382855446262180129, 504403158265626625, '{"path": "replay/parent", "active": {"start": {"loop": {"open": [0, 1], "size": 4, "epoch": 6595881801547211047, "items": {"v": [1, 2, 3, 4]}, "children": {"0": {"more": true, "prior": {"bytes": 19, "label": "start", "shape": "pipeline", "ref_id": 6835312448058114463, "sha256": "01879defa795be5fe23f926613a09476077e3a6ebbbf2e358f6e08154dd164c8", "execution_id": 382855446262180129}, "segment": 1, "child_id": 382855448169996722, "command_id": 3655492856036633067}, "1": {"more": true, "prior": {"bytes": 19, "label": "start", "shape": "pipeline", "ref_id": 1685580073676499949, "sha256": "8aa49fcda79fa32619abc1827895573fa35bbecbf8b7d54e0e93dc985e5336b4", "execution_id": 382855446262180129}, "segment": 1, "child_id": 382855448365104922, "command_id": 8851424645147381012}}, "context_id": 7834819701456471538, "issued_upto": 2, "max_in_flight": 2}, "cause": 504403158265528321, "activity": {}}}, "visits": {"start": 1}, "started": true, "version": 1, "workload": {"v": {"numbers": [1, 2, 3, 4]}}, "catalog_id": 382855446008879441, "execution_id": 382855446262180129, "last_event_id": 504403158265626625, "commands_issued": 2}');
INSERT INTO noetl.projection_state VALUES (382855447162215880, 180143985094852610, '{"path": "replay/child", "depth": 1, "active": {"start": {"cause": 180143985094852609, "activity": {"command_id": 2619578589320254235}}}, "visits": {"start": 1}, "started": true, "version": 1, "workload": {"v": {"n": 1, "fails": true}}, "catalog_id": 382855445939068747, "execution_id": 382855447162215880, "parent_place": {"step": "start", "command_id": 5320134491744227036, "iter_index": -1, "loop_epoch": 0}, "last_event_id": 180143985094852610, "commands_issued": 1, "parent_execution_id": 382855446927645675}');
INSERT INTO noetl.projection_state VALUES (382855448169996722, 504403158265593858, '{"path": "replay/child", "depth": 1, "active": {"start": {"cause": 504403158265593857, "activity": {"command_id": 8630630297025193147}}}, "visits": {"start": 1}, "started": true, "version": 1, "workload": {"v": {"n": 11, "fails": false}}, "catalog_id": 382855445939068747, "execution_id": 382855448169996722, "parent_place": {"step": "start", "command_id": 3655492856036633067, "iter_index": 0, "loop_epoch": 6595881801547211047}, "last_event_id": 504403158265593858, "commands_issued": 1, "parent_execution_id": 382855446262180129}');
INSERT INTO noetl.projection_state VALUES (382855448365104922, 540431955284492290, '{"path": "replay/child", "depth": 1, "active": {"start": {"cause": 540431955284492289, "activity": {"command_id": 7299603491151163422}}}, "visits": {"start": 1}, "started": true, "version": 1, "workload": {"v": {"n": 12, "fails": false}}, "catalog_id": 382855445939068747, "execution_id": 382855448365104922, "parent_place": {"step": "start", "command_id": 8851424645147381012, "iter_index": 1, "loop_epoch": 6595881801547211047}, "last_event_id": 540431955284492290, "commands_issued": 1, "parent_execution_id": 382855446262180129}');
INSERT INTO noetl.result_ref_20261116_00 VALUES (382855446262180129, 6835312448058114463, 'noetl://execution/382855446262180129/result/start/6835312448058114463', 'start', '', 'pipeline', 6595881801547211047, 0, NULL, 'db', '', 'application/json', 19, '01879defa795be5fe23f926613a09476077e3a6ebbbf2e358f6e08154dd164c8', 'none', NULL, NULL, NULL, '\x7b226265666f7265223a7b226e223a31317d7d', NULL, '2026-11-22 11:30:51.937075+00', NULL);
INSERT INTO noetl.result_ref_20261116_00 VALUES (382855446262180129, 1685580073676499949, 'noetl://execution/382855446262180129/result/start/1685580073676499949', 'start', '', 'pipeline', 6595881801547211047, 1, NULL, 'db', '', 'application/json', 19, '8aa49fcda79fa32619abc1827895573fa35bbecbf8b7d54e0e93dc985e5336b4', 'none', NULL, NULL, NULL, '\x7b226265666f7265223a7b226e223a31327d7d', NULL, '2026-11-22 11:30:51.964036+00', NULL);
INSERT INTO noetl.result_ref_20261116_00 VALUES (382855446127321497, 7983323610068677334, 'noetl://execution/382855446127321497/result/each/7983323610068677334', 'each', '', 'plain', 3767080977485723187, 0, NULL, 'db', '', 'application/json', 13, 'e1d7eae4b9b7bd4453383627332e69f80856078231ecaa5eb8dcfa5b98c5b2f4', 'none', NULL, NULL, NULL, '\x7b2270726f64756374223a337d', NULL, '2026-11-22 11:30:52.229175+00', NULL);
INSERT INTO noetl.result_ref_20261116_00 VALUES (382855446127321497, 85898779939650065, 'noetl://execution/382855446127321497/result/each/85898779939650065', 'each', '', 'plain', 3767080977485723187, 1, NULL, 'db', '', 'application/json', 13, '50d1cf2bfffe543934cd0ccc0d3a8c28489f7077e03514ba87464865f5a4d8b1', 'none', NULL, NULL, NULL, '\x7b2270726f64756374223a367d', NULL, '2026-11-22 11:30:52.261738+00', NULL);
INSERT INTO noetl.result_ref_20261116_00 VALUES (382855446127321497, 2976435063249435635, 'noetl://execution/382855446127321497/result/each/2976435063249435635', 'each', '', 'plain', 3767080977485723187, 2, NULL, 'db', '', 'application/json', 13, '21d8007cad8652bcb8be93d131148432be92f2b4544c589e65f3c527f7fbd981', 'none', NULL, NULL, NULL, '\x7b2270726f64756374223a397d', NULL, '2026-11-22 11:30:52.537539+00', NULL);
INSERT INTO noetl.result_ref_20261116_00 VALUES (382855446127321497, 5916021521512647476, 'noetl://execution/382855446127321497/result/each/5916021521512647476', 'each', '', 'plain', 3767080977485723187, 3, NULL, 'db', '', 'application/json', 14, '8addb9c319f9a740b057e738c60d599e3b8f86f294e875ed94a80136020bb817', 'none', NULL, NULL, NULL, '\x7b2270726f64756374223a31327d', NULL, '2026-11-22 11:30:52.562222+00', NULL);
INSERT INTO noetl.result_ref_20261116_00 VALUES (382855446127321497, 8924859055216343353, 'noetl://execution/382855446127321497/result/each/8924859055216343353', 'each', '', 'plain', 3767080977485723187, 4, NULL, 'db', '', 'application/json', 14, 'cf6ce80ca6c6dc9713503eded2c53cdc91460b0bd97c0beb075c7f4cb003d69e', 'none', NULL, NULL, NULL, '\x7b2270726f64756374223a31357d', NULL, '2026-11-22 11:30:52.837577+00', NULL);
INSERT INTO noetl.result_ref_20261116_00 VALUES (382855446127321497, 6564052365327708633, 'noetl://execution/382855446127321497/result/each/6564052365327708633', 'each', '', 'plain', 3767080977485723187, 5, NULL, 'db', '', 'application/json', 14, 'e520d3a2626163dfb3c660b0ba5296e0a57f5ece1d67f00afa518b5a190a9e21', 'none', NULL, NULL, NULL, '\x7b2270726f64756374223a31387d', NULL, '2026-11-22 11:30:52.869766+00', NULL);
INSERT INTO noetl.result_ref_20261116_00 VALUES (382855446127321497, 1761770559451073753, 'noetl://execution/382855446127321497/result/each/1761770559451073753', 'each', '', 'plain', 3767080977485723187, 6, NULL, 'db', '', 'application/json', 14, 'c66ea39f9003d336a7fdce43769b2c9778be5f3005a28bbb6d8a1a2c6148d839', 'none', NULL, NULL, NULL, '\x7b2270726f64756374223a32317d', NULL, '2026-11-22 11:30:53.13848+00', NULL);
INSERT INTO noetl.result_ref_20261116_00 VALUES (382855446127321497, 8156791739911286898, 'noetl://execution/382855446127321497/result/each/8156791739911286898', 'each', '', 'plain', 3767080977485723187, 7, NULL, 'db', '', 'application/json', 14, '52bd0f85713531a1bdafca6f3c26679d6a2c2e411d9167f5652f88bcaae4b9ac', 'none', NULL, NULL, NULL, '\x7b2270726f64756374223a32347d', NULL, '2026-11-22 11:30:53.193096+00', NULL);
INSERT INTO noetl.runtime VALUES (382855445175574307, 'worker_pool', 'worker-61be3c79f0eb', 'worker-61be3c79f0eb', '', 'ready', 6, 0, '{"pool_name": "default"}', '{"pid": 23852, "kind": "python", "version": "0.1.0", "hostname": "vm"}', '2026-11-22 11:30:51.241914+00', '2026-11-22 11:30:51.241914+00', '2026-11-22 11:30:51.241914+00');
INSERT INTO noetl.runtime VALUES (8234398896094073634, 'ingest', 'ingest-c3f2e679c869', 'ingest-c3f2e679c869', '', 'ready', 0, 0, '{}', '{}', '2026-11-22 11:30:52.416891+00', '2026-11-22 11:30:51.072029+00', '2026-11-22 11:30:52.416891+00');
INSERT INTO noetl.runtime VALUES (4251228447304182745, 'meta', 'meta-915e9e065fe7', 'meta-915e9e065fe7', '', 'ready', 0, 0, '{}', '{}', '2026-11-22 11:30:52.41808+00', '2026-11-22 11:30:50.378088+00', '2026-11-22 11:30:52.41808+00');
INSERT INTO noetl.runtime VALUES (5971239063131372061, 'compute', 'compute-753486c3f8f9', 'compute-753486c3f8f9', '', 'ready', 0, 0, '{}', '{}', '2026-11-22 11:30:53.087653+00', '2026-11-22 11:30:50.342481+00', '2026-11-22 11:30:53.087653+00');
INSERT INTO noetl.shard_cursor VALUES (0, 1, 0, 0, '2026-11-22 11:30:51.086094+00');
INSERT INTO noetl.shard_cursor VALUES (2, 1, 10, 0, '2026-11-22 11:30:53.210522+00');
INSERT INTO noetl.shard_cursor VALUES (3, 1, 0, 0, '2026-11-22 11:30:51.128071+00');
INSERT INTO noetl.shard_cursor VALUES (4, 1, 0, 0, '2026-11-22 11:30:51.137238+00');
INSERT INTO noetl.shard_cursor VALUES (6, 1, 0, 0, '2026-11-22 11:30:51.178605+00');
INSERT INTO noetl.shard_cursor VALUES (7, 1, 0, 0, '2026-11-22 11:30:51.191791+00');
INSERT INTO noetl.shard_cursor VALUES (8, 1, 0, 0, '2026-11-22 11:30:51.202921+00');
INSERT INTO noetl.shard_cursor VALUES (9, 1, 0, 0, '2026-11-22 11:30:51.211994+00');
INSERT INTO noetl.shard_cursor VALUES (10, 1, 0, 0, '2026-11-22 11:30:51.221049+00');
INSERT INTO noetl.shard_cursor VALUES (5, 1, 2, 0, '2026-11-22 11:30:53.184963+00');
INSERT INTO noetl.shard_cursor VALUES (1, 1, 2, 0, '2026-11-22 11:30:53.210751+00');
INSERT INTO noetl.shard_cursor VALUES (11, 1, 0, 0, '2026-11-22 11:30:51.230673+00');
INSERT INTO noetl.shard_cursor VALUES (12, 1, 0, 0, '2026-11-22 11:30:51.233563+00');
INSERT INTO noetl.shard_cursor VALUES (13, 1, 0, 0, '2026-11-22 11:30:51.260606+00');
INSERT INTO noetl.shard_cursor VALUES (14, 1, 4, 0, '2026-11-22 11:30:52.005246+00');
INSERT INTO noetl.shard_cursor VALUES (15, 1, 1, 0, '2026-11-22 11:30:52.021869+00');
INSERT INTO noetl.shard_head VALUES (0, 0);
INSERT INTO noetl.shard_head VALUES (3, 0);
INSERT INTO noetl.shard_head VALUES (4, 0);
INSERT INTO noetl.shard_head VALUES (6, 0);
INSERT INTO noetl.shard_head VALUES (7, 0);
INSERT INTO noetl.shard_head VALUES (8, 0);
INSERT INTO noetl.shard_head VALUES (9, 0);
INSERT INTO noetl.shard_head VALUES (10, 0);
INSERT INTO noetl.shard_head VALUES (11, 0);
INSERT INTO noetl.shard_head VALUES (12, 0);
INSERT INTO noetl.shard_head VALUES (13, 0);
INSERT INTO noetl.shard_head VALUES (14, 4);
INSERT INTO noetl.shard_head VALUES (15, 1);
INSERT INTO noetl.shard_head VALUES (2, 10);
INSERT INTO noetl.shard_head VALUES (5, 2);
INSERT INTO noetl.shard_head VALUES (1, 2);
INSERT INTO noetl.timer VALUES (382855446927645675, 6557224811850239250, 1, '2026-11-22 11:30:57.211133+00', 'retry:start:-1', 36028797019029505);
SELECT pg_catalog.setval('noetl.checkpoint_checkpoint_id_seq', 5, true);
SELECT pg_catalog.setval('noetl.claim_token', 18, true);
ALTER TABLE ONLY noetl.catalog
    ADD CONSTRAINT catalog_path_version_key UNIQUE (path, version);
ALTER TABLE ONLY noetl.catalog
    ADD CONSTRAINT catalog_pkey PRIMARY KEY (catalog_id);
ALTER TABLE ONLY noetl.checkpoint
    ADD CONSTRAINT checkpoint_pkey PRIMARY KEY (shard_id, checkpoint_id);
ALTER TABLE ONLY noetl.cluster
    ADD CONSTRAINT cluster_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY noetl.command
    ADD CONSTRAINT command_pkey PRIMARY KEY (execution_id, command_id);
ALTER TABLE ONLY noetl.command_20261116_00
    ADD CONSTRAINT command_20261116_00_pkey PRIMARY KEY (execution_id, command_id);
ALTER TABLE ONLY noetl.command_20261123_00
    ADD CONSTRAINT command_20261123_00_pkey PRIMARY KEY (execution_id, command_id);
ALTER TABLE ONLY noetl.command_20261130_00
    ADD CONSTRAINT command_20261130_00_pkey PRIMARY KEY (execution_id, command_id);
ALTER TABLE ONLY noetl.command_20261207_00
    ADD CONSTRAINT command_20261207_00_pkey PRIMARY KEY (execution_id, command_id);
ALTER TABLE ONLY noetl.command_context
    ADD CONSTRAINT command_context_pkey PRIMARY KEY (execution_id, context_id);
ALTER TABLE ONLY noetl.command_context_20261116_00
    ADD CONSTRAINT command_context_20261116_00_pkey PRIMARY KEY (execution_id, context_id);
ALTER TABLE ONLY noetl.command_context_20261123_00
    ADD CONSTRAINT command_context_20261123_00_pkey PRIMARY KEY (execution_id, context_id);
ALTER TABLE ONLY noetl.command_context_20261130_00
    ADD CONSTRAINT command_context_20261130_00_pkey PRIMARY KEY (execution_id, context_id);
ALTER TABLE ONLY noetl.command_context_20261207_00
    ADD CONSTRAINT command_context_20261207_00_pkey PRIMARY KEY (execution_id, context_id);
ALTER TABLE ONLY noetl.credential
    ADD CONSTRAINT credential_name_key UNIQUE (name);
ALTER TABLE ONLY noetl.credential
    ADD CONSTRAINT credential_pkey PRIMARY KEY (id);
ALTER TABLE ONLY noetl.dead_letter
    ADD CONSTRAINT dead_letter_pkey PRIMARY KEY (execution_id, command_id);
ALTER TABLE ONLY noetl.event
    ADD CONSTRAINT event_pkey PRIMARY KEY (execution_id, event_id);
ALTER TABLE ONLY noetl.event_20261116_00
    ADD CONSTRAINT event_20261116_00_pkey PRIMARY KEY (execution_id, event_id);
ALTER TABLE ONLY noetl.event_20261123_00
    ADD CONSTRAINT event_20261123_00_pkey PRIMARY KEY (execution_id, event_id);
ALTER TABLE ONLY noetl.event_20261130_00
    ADD CONSTRAINT event_20261130_00_pkey PRIMARY KEY (execution_id, event_id);
ALTER TABLE ONLY noetl.event_20261207_00
    ADD CONSTRAINT event_20261207_00_pkey PRIMARY KEY (execution_id, event_id);
ALTER TABLE ONLY noetl.execution
    ADD CONSTRAINT execution_idempotency_key_key UNIQUE (idempotency_key);
ALTER TABLE ONLY noetl.execution
    ADD CONSTRAINT execution_parent_command_id_key UNIQUE (parent_command_id);
ALTER TABLE ONLY noetl.execution
    ADD CONSTRAINT execution_pkey PRIMARY KEY (execution_id);
ALTER TABLE ONLY noetl.execution_shard
    ADD CONSTRAINT execution_shard_pkey PRIMARY KEY (role, shard_id);
ALTER TABLE ONLY noetl.execution_state
    ADD CONSTRAINT execution_state_pkey PRIMARY KEY (execution_id);
ALTER TABLE ONLY noetl.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (name);
ALTER TABLE ONLY noetl.projection_checkpoint
    ADD CONSTRAINT projection_checkpoint_pkey PRIMARY KEY (shard_id);
ALTER TABLE ONLY noetl.projection_state
    ADD CONSTRAINT projection_state_pkey PRIMARY KEY (execution_id);
ALTER TABLE ONLY noetl.result_ref
    ADD CONSTRAINT result_ref_pkey PRIMARY KEY (execution_id, ref_id);
ALTER TABLE ONLY noetl.result_ref_20261116_00
    ADD CONSTRAINT result_ref_20261116_00_pkey PRIMARY KEY (execution_id, ref_id);
ALTER TABLE ONLY noetl.result_ref_20261123_00
    ADD CONSTRAINT result_ref_20261123_00_pkey PRIMARY KEY (execution_id, ref_id);
ALTER TABLE ONLY noetl.result_ref_20261130_00
    ADD CONSTRAINT result_ref_20261130_00_pkey PRIMARY KEY (execution_id, ref_id);
ALTER TABLE ONLY noetl.result_ref_20261207_00
    ADD CONSTRAINT result_ref_20261207_00_pkey PRIMARY KEY (execution_id, ref_id);
ALTER TABLE ONLY noetl.runtime
    ADD CONSTRAINT runtime_kind_name_key UNIQUE (kind, name);
ALTER TABLE ONLY noetl.runtime
    ADD CONSTRAINT runtime_pkey PRIMARY KEY (runtime_id);
ALTER TABLE ONLY noetl.shard_cursor
    ADD CONSTRAINT shard_cursor_pkey PRIMARY KEY (shard_id);
ALTER TABLE ONLY noetl.shard_head
    ADD CONSTRAINT shard_head_pkey PRIMARY KEY (shard_id);
ALTER TABLE ONLY noetl.timer
    ADD CONSTRAINT timer_pkey PRIMARY KEY (execution_id, timer_id);
CREATE INDEX command_leased ON ONLY noetl.command USING btree (lease_until) WHERE (status = 'claimed'::text);
CREATE INDEX command_20261116_00_lease_until_idx ON noetl.command_20261116_00 USING btree (lease_until) WHERE (status = 'claimed'::text);
CREATE INDEX command_pending ON ONLY noetl.command USING btree (pool, priority DESC, available_at, issued_event_id) WHERE (status = 'pending'::text);
CREATE INDEX command_20261116_00_pool_priority_available_at_issued_event_idx ON noetl.command_20261116_00 USING btree (pool, priority DESC, available_at, issued_event_id) WHERE (status = 'pending'::text);
CREATE INDEX command_20261123_00_lease_until_idx ON noetl.command_20261123_00 USING btree (lease_until) WHERE (status = 'claimed'::text);
CREATE INDEX command_20261123_00_pool_priority_available_at_issued_event_idx ON noetl.command_20261123_00 USING btree (pool, priority DESC, available_at, issued_event_id) WHERE (status = 'pending'::text);
CREATE INDEX command_20261130_00_lease_until_idx ON noetl.command_20261130_00 USING btree (lease_until) WHERE (status = 'claimed'::text);
CREATE INDEX command_20261130_00_pool_priority_available_at_issued_event_idx ON noetl.command_20261130_00 USING btree (pool, priority DESC, available_at, issued_event_id) WHERE (status = 'pending'::text);
CREATE INDEX command_20261207_00_lease_until_idx ON noetl.command_20261207_00 USING btree (lease_until) WHERE (status = 'claimed'::text);
CREATE INDEX command_20261207_00_pool_priority_available_at_issued_event_idx ON noetl.command_20261207_00 USING btree (pool, priority DESC, available_at, issued_event_id) WHERE (status = 'pending'::text);
CREATE UNIQUE INDEX event_dedup ON ONLY noetl.event USING btree (execution_id, dedup_key) WHERE (dedup_key IS NOT NULL);
CREATE UNIQUE INDEX event_20261116_00_execution_id_dedup_key_idx ON noetl.event_20261116_00 USING btree (execution_id, dedup_key) WHERE (dedup_key IS NOT NULL);
CREATE INDEX event_shard ON ONLY noetl.event USING btree (shard_id, event_id);
CREATE INDEX event_20261116_00_shard_id_event_id_idx ON noetl.event_20261116_00 USING btree (shard_id, event_id);
CREATE UNIQUE INDEX event_20261123_00_execution_id_dedup_key_idx ON noetl.event_20261123_00 USING btree (execution_id, dedup_key) WHERE (dedup_key IS NOT NULL);
CREATE INDEX event_20261123_00_shard_id_event_id_idx ON noetl.event_20261123_00 USING btree (shard_id, event_id);
CREATE UNIQUE INDEX event_20261130_00_execution_id_dedup_key_idx ON noetl.event_20261130_00 USING btree (execution_id, dedup_key) WHERE (dedup_key IS NOT NULL);
CREATE INDEX event_20261130_00_shard_id_event_id_idx ON noetl.event_20261130_00 USING btree (shard_id, event_id);
CREATE UNIQUE INDEX event_20261207_00_execution_id_dedup_key_idx ON noetl.event_20261207_00 USING btree (execution_id, dedup_key) WHERE (dedup_key IS NOT NULL);
CREATE INDEX event_20261207_00_shard_id_event_id_idx ON noetl.event_20261207_00 USING btree (shard_id, event_id);
CREATE INDEX execution_parent ON noetl.execution USING btree (parent_execution_id) WHERE (parent_execution_id IS NOT NULL);
CREATE INDEX execution_path ON noetl.execution USING btree (path, execution_id);
CREATE INDEX result_ref_loop ON ONLY noetl.result_ref USING btree (execution_id, loop_epoch, iter_index) WHERE (loop_epoch <> 0);
CREATE INDEX result_ref_20261116_00_execution_id_loop_epoch_iter_index_idx ON noetl.result_ref_20261116_00 USING btree (execution_id, loop_epoch, iter_index) WHERE (loop_epoch <> 0);
CREATE INDEX result_ref_20261123_00_execution_id_loop_epoch_iter_index_idx ON noetl.result_ref_20261123_00 USING btree (execution_id, loop_epoch, iter_index) WHERE (loop_epoch <> 0);
CREATE INDEX result_ref_20261130_00_execution_id_loop_epoch_iter_index_idx ON noetl.result_ref_20261130_00 USING btree (execution_id, loop_epoch, iter_index) WHERE (loop_epoch <> 0);
CREATE INDEX result_ref_20261207_00_execution_id_loop_epoch_iter_index_idx ON noetl.result_ref_20261207_00 USING btree (execution_id, loop_epoch, iter_index) WHERE (loop_epoch <> 0);
CREATE INDEX runtime_heartbeat ON noetl.runtime USING btree (kind, heartbeat);
CREATE INDEX timer_due ON noetl.timer USING btree (shard_id, due_at);
ALTER INDEX noetl.command_leased ATTACH PARTITION noetl.command_20261116_00_lease_until_idx;
ALTER INDEX noetl.command_pkey ATTACH PARTITION noetl.command_20261116_00_pkey;
ALTER INDEX noetl.command_pending ATTACH PARTITION noetl.command_20261116_00_pool_priority_available_at_issued_event_idx;
ALTER INDEX noetl.command_leased ATTACH PARTITION noetl.command_20261123_00_lease_until_idx;
ALTER INDEX noetl.command_pkey ATTACH PARTITION noetl.command_20261123_00_pkey;
ALTER INDEX noetl.command_pending ATTACH PARTITION noetl.command_20261123_00_pool_priority_available_at_issued_event_idx;
ALTER INDEX noetl.command_leased ATTACH PARTITION noetl.command_20261130_00_lease_until_idx;
ALTER INDEX noetl.command_pkey ATTACH PARTITION noetl.command_20261130_00_pkey;
ALTER INDEX noetl.command_pending ATTACH PARTITION noetl.command_20261130_00_pool_priority_available_at_issued_event_idx;
ALTER INDEX noetl.command_leased ATTACH PARTITION noetl.command_20261207_00_lease_until_idx;
ALTER INDEX noetl.command_pkey ATTACH PARTITION noetl.command_20261207_00_pkey;
ALTER INDEX noetl.command_pending ATTACH PARTITION noetl.command_20261207_00_pool_priority_available_at_issued_event_idx;
ALTER INDEX noetl.command_context_pkey ATTACH PARTITION noetl.command_context_20261116_00_pkey;
ALTER INDEX noetl.command_context_pkey ATTACH PARTITION noetl.command_context_20261123_00_pkey;
ALTER INDEX noetl.command_context_pkey ATTACH PARTITION noetl.command_context_20261130_00_pkey;
ALTER INDEX noetl.command_context_pkey ATTACH PARTITION noetl.command_context_20261207_00_pkey;
ALTER INDEX noetl.event_dedup ATTACH PARTITION noetl.event_20261116_00_execution_id_dedup_key_idx;
ALTER INDEX noetl.event_pkey ATTACH PARTITION noetl.event_20261116_00_pkey;
ALTER INDEX noetl.event_shard ATTACH PARTITION noetl.event_20261116_00_shard_id_event_id_idx;
ALTER INDEX noetl.event_dedup ATTACH PARTITION noetl.event_20261123_00_execution_id_dedup_key_idx;
ALTER INDEX noetl.event_pkey ATTACH PARTITION noetl.event_20261123_00_pkey;
ALTER INDEX noetl.event_shard ATTACH PARTITION noetl.event_20261123_00_shard_id_event_id_idx;
ALTER INDEX noetl.event_dedup ATTACH PARTITION noetl.event_20261130_00_execution_id_dedup_key_idx;
ALTER INDEX noetl.event_pkey ATTACH PARTITION noetl.event_20261130_00_pkey;
ALTER INDEX noetl.event_shard ATTACH PARTITION noetl.event_20261130_00_shard_id_event_id_idx;
ALTER INDEX noetl.event_dedup ATTACH PARTITION noetl.event_20261207_00_execution_id_dedup_key_idx;
ALTER INDEX noetl.event_pkey ATTACH PARTITION noetl.event_20261207_00_pkey;
ALTER INDEX noetl.event_shard ATTACH PARTITION noetl.event_20261207_00_shard_id_event_id_idx;
ALTER INDEX noetl.result_ref_loop ATTACH PARTITION noetl.result_ref_20261116_00_execution_id_loop_epoch_iter_index_idx;
ALTER INDEX noetl.result_ref_pkey ATTACH PARTITION noetl.result_ref_20261116_00_pkey;
ALTER INDEX noetl.result_ref_loop ATTACH PARTITION noetl.result_ref_20261123_00_execution_id_loop_epoch_iter_index_idx;
ALTER INDEX noetl.result_ref_pkey ATTACH PARTITION noetl.result_ref_20261123_00_pkey;
ALTER INDEX noetl.result_ref_loop ATTACH PARTITION noetl.result_ref_20261130_00_execution_id_loop_epoch_iter_index_idx;
ALTER INDEX noetl.result_ref_pkey ATTACH PARTITION noetl.result_ref_20261130_00_pkey;
ALTER INDEX noetl.result_ref_loop ATTACH PARTITION noetl.result_ref_20261207_00_execution_id_loop_epoch_iter_index_idx;
ALTER INDEX noetl.result_ref_pkey ATTACH PARTITION noetl.result_ref_20261207_00_pkey;
