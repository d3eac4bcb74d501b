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
    details jsonb,
    CONSTRAINT command_details_check CHECK ((octet_length((details)::text) <= 1024)),
    CONSTRAINT command_item_check CHECK ((octet_length((item)::text) <= 2048)),
    CONSTRAINT command_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'claimed'::text, 'completed'::text, 'failed'::text, 'cancelled'::text])))
)
PARTITION BY RANGE (execution_id);
COMMENT ON TABLE noetl.command IS 'The queue. Issued, claimed, noted upon and finished by ingest; expired leases returned by meta.';
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
    details jsonb,
    CONSTRAINT command_details_check CHECK ((octet_length((details)::text) <= 1024)),
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
    details jsonb,
    CONSTRAINT command_details_check CHECK ((octet_length((details)::text) <= 1024)),
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
    details jsonb,
    CONSTRAINT command_details_check CHECK ((octet_length((details)::text) <= 1024)),
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
    details jsonb,
    CONSTRAINT command_details_check CHECK ((octet_length((details)::text) <= 1024)),
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
CREATE TABLE noetl.compaction (
    low bigint NOT NULL,
    high bigint NOT NULL,
    suffix text NOT NULL,
    state text DEFAULT 'folded'::text NOT NULL,
    fence_xid xid8,
    heads jsonb,
    executions bigint DEFAULT 0 NOT NULL,
    repaired bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT compaction_state_check CHECK ((state = ANY (ARRAY['folded'::text, 'sealed'::text, 'detaching'::text, 'detached'::text, 'verified'::text, 'dropped'::text])))
);
COMMENT ON TABLE noetl.compaction IS 'How far a range of the log is on its way out; one that is not here is in use. Written by compactor, shard 0.';
CREATE TABLE noetl.compaction_cursor (
    shard_id smallint NOT NULL,
    lease_epoch bigint DEFAULT 0 NOT NULL,
    folded_at timestamp with time zone
)
WITH (fillfactor='10');
COMMENT ON TABLE noetl.compaction_cursor IS 'The fence of a shard''s compactor, and of shard 0''s for partitions. folded_at by the owner, lease_epoch by meta.';
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
    compacted_at timestamp with time zone,
    CONSTRAINT execution_status_check CHECK ((status = ANY (ARRAY['RUNNING'::text, 'COMPLETED'::text, 'FAILED'::text, 'CANCELLED'::text])))
)
WITH (fillfactor='70');
COMMENT ON TABLE noetl.execution IS 'One row a run. Columns up to start_time: written once by ingest. compacted_at: by compactor, with the manifest.
From status on: the read model of compute.';
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
CREATE TABLE noetl.kept_result (
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
    scope text DEFAULT 'execution'::text CONSTRAINT result_ref_scope_not_null NOT NULL,
    CONSTRAINT result_ref_inline_payload_check CHECK ((octet_length(inline_payload) <= 8192)),
    CONSTRAINT result_ref_scope_check CHECK ((scope = ANY (ARRAY['step'::text, 'execution'::text, 'workflow'::text, 'permanent'::text]))),
    CONSTRAINT result_ref_shape_check CHECK ((shape = ANY (ARRAY['plain'::text, 'pipeline'::text, 'loop'::text]))),
    CONSTRAINT result_ref_store_tier_check CHECK ((store_tier = ANY (ARRAY['db'::text, 'disk'::text, 'pvc'::text, 'minio'::text, 's3'::text, 'gcs'::text, 'kv'::text])))
);
COMMENT ON TABLE noetl.kept_result IS 'Results that outlive their execution''s part of the log. Written by compactor, by ingest when they are deleted.';
CREATE TABLE noetl.manifest (
    execution_id bigint NOT NULL,
    shard_id smallint NOT NULL,
    catalog_id bigint NOT NULL,
    path text NOT NULL,
    version integer NOT NULL,
    parent_execution_id bigint,
    status text NOT NULL,
    terminal_event_id bigint,
    terminal_ref jsonb,
    chain_depth integer NOT NULL,
    events bigint NOT NULL,
    commands bigint NOT NULL,
    results bigint NOT NULL,
    counts jsonb NOT NULL,
    last_event_id bigint NOT NULL,
    first_event_time timestamp with time zone,
    last_event_time timestamp with time zone,
    trace_digest text NOT NULL,
    workload jsonb,
    parts integer NOT NULL,
    compacted_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
COMMENT ON TABLE noetl.manifest IS 'What is kept of a finished execution; where its row is, the log is not asked any more. Written by compactor.';
CREATE TABLE noetl.manifest_part (
    execution_id bigint NOT NULL,
    kind text NOT NULL,
    step text DEFAULT ''::text NOT NULL,
    part_no integer NOT NULL,
    first bigint NOT NULL,
    count integer NOT NULL,
    body text NOT NULL,
    CONSTRAINT manifest_part_kind_check CHECK ((kind = ANY (ARRAY['events'::text, 'trace'::text, 'links'::text])))
);
COMMENT ON TABLE noetl.manifest_part IS 'A manifest''s history and lineage, up to 500 rows a part, each row a JSON array. Written by compactor.';
CREATE TABLE noetl.migration (
    name text NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
CREATE TABLE noetl.orphan_payload (
    uri text NOT NULL,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
COMMENT ON TABLE noetl.orphan_payload IS 'Payloads that no row named when they were looked at; one that no row names later either is deleted. By compactor.';
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
    scope text DEFAULT 'execution'::text NOT NULL,
    CONSTRAINT result_ref_inline_payload_check CHECK ((octet_length(inline_payload) <= 8192)),
    CONSTRAINT result_ref_scope_check CHECK ((scope = ANY (ARRAY['step'::text, 'execution'::text, 'workflow'::text, 'permanent'::text]))),
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
    scope text DEFAULT 'execution'::text CONSTRAINT result_ref_scope_not_null NOT NULL,
    CONSTRAINT result_ref_inline_payload_check CHECK ((octet_length(inline_payload) <= 8192)),
    CONSTRAINT result_ref_scope_check CHECK ((scope = ANY (ARRAY['step'::text, 'execution'::text, 'workflow'::text, 'permanent'::text]))),
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
    scope text DEFAULT 'execution'::text CONSTRAINT result_ref_scope_not_null NOT NULL,
    CONSTRAINT result_ref_inline_payload_check CHECK ((octet_length(inline_payload) <= 8192)),
    CONSTRAINT result_ref_scope_check CHECK ((scope = ANY (ARRAY['step'::text, 'execution'::text, 'workflow'::text, 'permanent'::text]))),
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
    scope text DEFAULT 'execution'::text CONSTRAINT result_ref_scope_not_null NOT NULL,
    CONSTRAINT result_ref_inline_payload_check CHECK ((octet_length(inline_payload) <= 8192)),
    CONSTRAINT result_ref_scope_check CHECK ((scope = ANY (ARRAY['step'::text, 'execution'::text, 'workflow'::text, 'permanent'::text]))),
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
    scope text DEFAULT 'execution'::text CONSTRAINT result_ref_scope_not_null NOT NULL,
    CONSTRAINT result_ref_inline_payload_check CHECK ((octet_length(inline_payload) <= 8192)),
    CONSTRAINT result_ref_scope_check CHECK ((scope = ANY (ARRAY['step'::text, 'execution'::text, 'workflow'::text, 'permanent'::text]))),
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
INSERT INTO noetl.catalog VALUES (382855486582070777, 'replay/loop', 1, 'Playbook', 'apiVersion: noetl.io/v2
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
', '0f26fd3b318f9ee14f856018f7f22c1bdbb200ae1580050c0bf997f2494e822a', '{"name": "loop"}', NULL, '2026-11-22 11:31:01.120312+00');
INSERT INTO noetl.catalog VALUES (382855486686312526, 'replay/child', 1, 'Playbook', 'apiVersion: noetl.io/v2
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
', 'faac968cb46a644e8450df7aefea97b21f745633c862b4f09feb6ba1813d3561', '{"name": "child"}', NULL, '2026-11-22 11:31:01.141673+00');
INSERT INTO noetl.catalog VALUES (382855486831771015, 'replay/parent', 1, 'Playbook', 'apiVersion: noetl.io/v2
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
', '2d7851390c4934726ec530d978ad06bbfee5002a7adcb40a7b06b227bd3dd6e0', '{"name": "parent"}', NULL, '2026-11-22 11:31:01.178091+00');
INSERT INTO noetl.catalog VALUES (382855486984803658, 'replay/retry', 1, 'Playbook', 'apiVersion: noetl.io/v2
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
', '14d241310d48b9492c6f65ccdce581870d310ca87cdaff1485ff168eeb04b5cc', '{"name": "retry"}', NULL, '2026-11-22 11:31:01.21382+00');
INSERT INTO noetl.checkpoint OVERRIDING SYSTEM VALUE VALUES (5, 1, 1, 1, 1, 1, 0, '2026-11-22 11:31:01.674097+00');
INSERT INTO noetl.checkpoint OVERRIDING SYSTEM VALUE VALUES (15, 2, 1, 1, 1, 1, 0, '2026-11-22 11:31:01.674212+00');
INSERT INTO noetl.checkpoint OVERRIDING SYSTEM VALUE VALUES (3, 3, 1, 2, 2, 2, 0, '2026-11-22 11:31:01.674216+00');
INSERT INTO noetl.checkpoint OVERRIDING SYSTEM VALUE VALUES (12, 4, 1, 1, 0, 1, 0, '2026-11-22 11:31:01.674218+00');
INSERT INTO noetl.checkpoint OVERRIDING SYSTEM VALUE VALUES (13, 5, 1, 1, 1, 1, 0, '2026-11-22 11:31:02.685659+00');
INSERT INTO noetl.checkpoint OVERRIDING SYSTEM VALUE VALUES (1, 6, 1, 1, 1, 1, 0, '2026-11-22 11:31:02.685679+00');
INSERT INTO noetl.checkpoint OVERRIDING SYSTEM VALUE VALUES (12, 7, 1, 1, 1, 1, 0, '2026-11-22 11:31:02.685683+00');
INSERT INTO noetl.checkpoint OVERRIDING SYSTEM VALUE VALUES (5, 8, 1, 3, 3, 3, 0, '2026-11-22 11:31:02.685686+00');
INSERT INTO noetl.checkpoint OVERRIDING SYSTEM VALUE VALUES (3, 9, 1, 6, 6, 7, 0, '2026-11-22 11:31:02.685688+00');
INSERT INTO noetl.cluster VALUES (true, '6468e510-3bfd-46f8-b6f4-84a57ea395c3', 16, 168, '2026-11-22 11:31:00.634502+00');
INSERT INTO noetl.command_20261116_00 VALUES (382855487082347372, 4594888788791695077, 3, 'start', 'default', 0, 'completed', 1, 0, 1, false, '2026-11-22 11:31:01.278508+00', NULL, 'worker-39e42df87f2f', 0, -1, NULL, 5551943783206127692, 108086391056924674, NULL);
INSERT INTO noetl.command_20261116_00 VALUES (382855487816228079, 3440142947137031269, 5, 'start', 'default', 0, 'completed', 1, 0, 2, false, '2026-11-22 11:31:01.449276+00', NULL, 'worker-39e42df87f2f', 321450964469417014, 0, '{"v": 1}', 1299042206693411932, 180143985094852611, NULL);
INSERT INTO noetl.command_20261116_00 VALUES (382855487816228079, 2334505863788182854, 5, 'start', 'default', 0, 'completed', 1, 0, 3, false, '2026-11-22 11:31:01.449313+00', NULL, 'worker-39e42df87f2f', 321450964469417014, 1, '{"v": 2}', 1299042206693411932, 180143985094852612, NULL);
INSERT INTO noetl.command_20261116_00 VALUES (382855487082347372, 4377728957430312380, 3, 'each', 'default', 0, 'completed', 1, 0, 4, false, '2026-11-22 11:31:01.536278+00', NULL, 'worker-39e42df87f2f', 5115758414269443409, 0, '{"v": 1}', 1551956257476871462, 108086391056957445, NULL);
INSERT INTO noetl.command_20261116_00 VALUES (382855487082347372, 1825857277218949258, 3, 'each', 'default', 0, 'completed', 1, 0, 5, false, '2026-11-22 11:31:01.536427+00', NULL, 'worker-39e42df87f2f', 5115758414269443409, 1, '{"v": 2}', 1551956257476871462, 108086391056957446, NULL);
INSERT INTO noetl.command_20261116_00 VALUES (382855487082347372, 4231548549433187432, 3, 'each', 'default', 0, 'completed', 1, 0, 6, false, '2026-11-22 11:31:01.536431+00', NULL, 'worker-39e42df87f2f', 5115758414269443409, 2, '{"v": 3}', 1551956257476871462, 108086391056957447, NULL);
INSERT INTO noetl.command_20261116_00 VALUES (382855489262590840, 1317625975005365161, 1, 'start', 'default', 0, 'claimed', 1, 0, 13, false, '2026-11-22 11:31:01.770715+00', '2026-11-22 11:31:17.366287+00', 'worker-39e42df87f2f', 0, -1, NULL, 3680894078958314388, 36028797018996738, NULL);
INSERT INTO noetl.command_20261116_00 VALUES (382855487082347372, 8812780771614634103, 3, 'each', 'default', 0, 'completed', 1, 0, 7, false, '2026-11-22 11:31:01.536434+00', NULL, 'worker-39e42df87f2f', 5115758414269443409, 3, '{"v": 4}', 1551956257476871462, 108086391056957448, NULL);
INSERT INTO noetl.command_20261116_00 VALUES (382855487082347372, 5110259685276101679, 3, 'each', 'default', 0, 'completed', 1, 0, 8, false, '2026-11-22 11:31:01.536436+00', NULL, 'worker-39e42df87f2f', 5115758414269443409, 4, '{"v": 5}', 1551956257476871462, 108086391056957449, NULL);
INSERT INTO noetl.command_20261116_00 VALUES (382855489320965918, 468923279178210703, 13, 'start', 'default', 0, 'claimed', 1, 0, 14, false, '2026-11-22 11:31:01.790311+00', '2026-11-22 11:31:17.652009+00', 'worker-39e42df87f2f', 0, -1, NULL, 2792693340688873201, 468374361246564354, NULL);
INSERT INTO noetl.command_20261116_00 VALUES (382855487082347372, 8822252289454655067, 3, 'each', 'default', 0, 'completed', 1, 0, 9, false, '2026-11-22 11:31:01.536438+00', NULL, 'worker-39e42df87f2f', 5115758414269443409, 5, '{"v": 6}', 1551956257476871462, 108086391056957450, NULL);
INSERT INTO noetl.command_20261116_00 VALUES (382855487082347372, 3368583214509476670, 3, 'each', 'default', 0, 'pending', 0, 0, NULL, false, '2026-11-22 11:31:02.691988+00', NULL, NULL, 5115758414269443409, 12, '{"v": 13}', 1551956257476871462, 108086391057121281, NULL);
INSERT INTO noetl.command_20261116_00 VALUES (382855487082347372, 8728654680602694685, 3, 'each', 'default', 0, 'claimed', 1, 0, 15, false, '2026-11-22 11:31:02.0558+00', '2026-11-22 11:31:17.694026+00', 'worker-39e42df87f2f', 5115758414269443409, 8, '{"v": 9}', 1551956257476871462, 108086391056990209, NULL);
INSERT INTO noetl.command_20261116_00 VALUES (382855487082347372, 1435591216264417956, 3, 'each', 'default', 0, 'pending', 0, 0, NULL, false, '2026-11-22 11:31:02.713912+00', NULL, NULL, 5115758414269443409, 13, '{"v": 14}', 1551956257476871462, 108086391057154049, NULL);
INSERT INTO noetl.command_20261116_00 VALUES (382855487082347372, 6320851436926953939, 3, 'each', 'default', 0, 'claimed', 1, 0, 16, false, '2026-11-22 11:31:02.088315+00', '2026-11-22 11:31:17.946564+00', 'worker-39e42df87f2f', 5115758414269443409, 9, '{"v": 10}', 1551956257476871462, 108086391057022977, NULL);
INSERT INTO noetl.command_20261116_00 VALUES (382855487082347372, 6236173122363767414, 3, 'each', 'default', 0, 'completed', 1, 0, 10, false, '2026-11-22 11:31:01.53644+00', NULL, 'worker-39e42df87f2f', 5115758414269443409, 6, '{"v": 7}', 1551956257476871462, 108086391056957451, NULL);
INSERT INTO noetl.command_20261116_00 VALUES (382855487082347372, 8678891237107083974, 3, 'each', 'default', 0, 'claimed', 1, 0, 17, false, '2026-11-22 11:31:02.345501+00', '2026-11-22 11:31:17.969034+00', 'worker-39e42df87f2f', 5115758414269443409, 10, '{"v": 11}', 1551956257476871462, 108086391057055745, NULL);
INSERT INTO noetl.command_20261116_00 VALUES (382855487082347372, 5465392182526582534, 3, 'each', 'default', 0, 'pending', 0, 0, NULL, false, '2026-11-22 11:31:02.98283+00', NULL, NULL, 5115758414269443409, 14, '{"v": 15}', 1551956257476871462, 108086391057186817, NULL);
INSERT INTO noetl.command_20261116_00 VALUES (382855488271797739, 5810757811798803925, 12, 'start', 'default', 0, 'failed', 1, 0, 12, false, '2026-11-22 11:31:01.553648+00', NULL, 'worker-39e42df87f2f', 0, -1, NULL, 6948920405266567475, 432345564227600386, NULL);
INSERT INTO noetl.command_20261116_00 VALUES (382855487082347372, 7811875606267072549, 3, 'each', 'default', 0, 'completed', 1, 0, 11, false, '2026-11-22 11:31:01.536444+00', NULL, 'worker-39e42df87f2f', 5115758414269443409, 7, '{"v": 8}', 1551956257476871462, 108086391056957452, NULL);
INSERT INTO noetl.command_20261116_00 VALUES (382855487082347372, 7214758456270106528, 3, 'each', 'default', 0, 'claimed', 1, 0, 18, false, '2026-11-22 11:31:02.381726+00', '2026-11-22 11:31:17.994417+00', 'worker-39e42df87f2f', 5115758414269443409, 11, '{"v": 12}', 1551956257476871462, 108086391057088513, NULL);
INSERT INTO noetl.command_20261116_00 VALUES (382855487082347372, 1480848526921823743, 3, 'each', 'default', 0, 'pending', 0, 0, NULL, false, '2026-11-22 11:31:03.010301+00', NULL, NULL, 5115758414269443409, 15, '{"v": 16}', 1551956257476871462, 108086391057219585, NULL);
INSERT INTO noetl.command_context_20261116_00 VALUES (382855487082347372, 5551943783206127692, '{"path": "replay/loop", "step": "start", "tasks": [{"kind": "noop", "label": "start"}], "version": 1, "workload": {"v": {"numbers": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}}, "catalog_id": 382855486582070777, "execution_id": 382855487082347372}');
INSERT INTO noetl.command_context_20261116_00 VALUES (382855487816228079, 1299042206693411932, '{"more": true, "path": "replay/parent", "step": "start", "tasks": [{"kind": "python", "input": {"n": "{{ iter.n }}"}, "label": "before", "config": {"code": "result = {''n'': n + 10}"}}], "total": 4, "version": 1, "iterator": "n", "workload": {"v": {"numbers": [1, 2, 3, 4]}}, "catalog_id": 382855486831771015, "is_pipeline": true, "execution_id": 382855487816228079}');
INSERT INTO noetl.command_context_20261116_00 VALUES (382855487082347372, 1551956257476871462, '{"ctx": {"factor": {"v": 3}}, "path": "replay/loop", "step": "each", "tasks": [{"kind": "python", "input": {"n": "{{ iter.n }}", "factor": "{{ ctx.factor }}"}, "label": "each", "config": {"code": "import time\ntime.sleep(0.3)\nresult = {\"product\": n * factor}\n"}}], "total": 20, "version": 1, "iterator": "n", "workload": {"v": {"numbers": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}}, "catalog_id": 382855486582070777, "execution_id": 382855487082347372}');
INSERT INTO noetl.command_context_20261116_00 VALUES (382855488271797739, 6948920405266567475, '{"path": "replay/child", "step": "start", "tasks": [{"kind": "python", "input": {"n": "{{ n }}", "fails": "{{ fails }}"}, "label": "start", "config": {"code": "import time\nif fails:\n    raise ValueError(\"as it was asked to\")\ntime.sleep(1.5)\nresult = {\"doubled\": 2 * n}\n"}}], "version": 1, "workload": {"v": {"n": 1, "fails": true}}, "catalog_id": 382855486686312526, "execution_id": 382855488271797739, "parent_execution_id": 382855488002979782}');
INSERT INTO noetl.command_context_20261116_00 VALUES (382855489262590840, 3680894078958314388, '{"path": "replay/child", "step": "start", "tasks": [{"kind": "python", "input": {"n": "{{ n }}", "fails": "{{ fails }}"}, "label": "start", "config": {"code": "import time\nif fails:\n    raise ValueError(\"as it was asked to\")\ntime.sleep(1.5)\nresult = {\"doubled\": 2 * n}\n"}}], "version": 1, "workload": {"v": {"n": 11, "fails": false}}, "catalog_id": 382855486686312526, "execution_id": 382855489262590840, "parent_execution_id": 382855487816228079}');
INSERT INTO noetl.command_context_20261116_00 VALUES (382855489320965918, 2792693340688873201, '{"path": "replay/child", "step": "start", "tasks": [{"kind": "python", "input": {"n": "{{ n }}", "fails": "{{ fails }}"}, "label": "start", "config": {"code": "import time\nif fails:\n    raise ValueError(\"as it was asked to\")\ntime.sleep(1.5)\nresult = {\"doubled\": 2 * n}\n"}}], "version": 1, "workload": {"v": {"n": 12, "fails": false}}, "catalog_id": 382855486686312526, "execution_id": 382855489320965918, "parent_execution_id": 382855487816228079}');
INSERT INTO noetl.compaction_cursor VALUES (0, 0, NULL);
INSERT INTO noetl.compaction_cursor VALUES (1, 0, NULL);
INSERT INTO noetl.compaction_cursor VALUES (2, 0, NULL);
INSERT INTO noetl.compaction_cursor VALUES (3, 0, NULL);
INSERT INTO noetl.compaction_cursor VALUES (4, 0, NULL);
INSERT INTO noetl.compaction_cursor VALUES (5, 0, NULL);
INSERT INTO noetl.compaction_cursor VALUES (6, 0, NULL);
INSERT INTO noetl.compaction_cursor VALUES (7, 0, NULL);
INSERT INTO noetl.compaction_cursor VALUES (8, 0, NULL);
INSERT INTO noetl.compaction_cursor VALUES (9, 0, NULL);
INSERT INTO noetl.compaction_cursor VALUES (10, 0, NULL);
INSERT INTO noetl.compaction_cursor VALUES (11, 0, NULL);
INSERT INTO noetl.compaction_cursor VALUES (12, 0, NULL);
INSERT INTO noetl.compaction_cursor VALUES (13, 0, NULL);
INSERT INTO noetl.compaction_cursor VALUES (14, 0, NULL);
INSERT INTO noetl.compaction_cursor VALUES (15, 0, NULL);
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391056924672, 3, 'playbook.started', NULL, NULL, NULL, NULL, NULL, 'STARTED', '{"status": "STARTED", "context": {"path": "replay/loop", "depth": 0, "version": 1, "workload": {"v": {"numbers": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}}, "catalog_id": 382855486582070777}}', '{"asked": "b788d4493bdd72cf2cd02b9431134584", "nonce": "4d94a625a045d2ca"}', 'start', 382855486582070777, NULL, NULL, '2026-11-22 11:31:01.231557+00', '2026-11-22 11:31:01.241345+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391056924673, 3, 'step.enter', 'start', NULL, NULL, NULL, NULL, 'STARTED', NULL, NULL, NULL, 382855486582070777, NULL, NULL, '2026-11-22 11:31:01.231557+00', '2026-11-22 11:31:01.277514+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391056924674, 3, 'command.issued', 'start', 4594888788791695077, NULL, NULL, NULL, 'PENDING', NULL, '{"pool": "default", "tool_kind": "noop"}', 'issued:4594888788791695077', 382855486582070777, NULL, NULL, '2026-11-22 11:31:01.231557+00', '2026-11-22 11:31:01.277829+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487816228079, 180143985094852608, 5, 'playbook.started', NULL, NULL, NULL, NULL, NULL, 'STARTED', '{"status": "STARTED", "context": {"path": "replay/parent", "depth": 0, "version": 1, "workload": {"v": {"numbers": [1, 2, 3, 4]}}, "catalog_id": 382855486831771015}}', '{"asked": "8e9fdd4f7d3e2de918d7e0259ea3949c", "nonce": "7d3467b8628603ad"}', 'start', 382855486831771015, NULL, NULL, '2026-11-22 11:31:01.406522+00', '2026-11-22 11:31:01.422756+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487816228079, 180143985094852609, 5, 'step.enter', 'start', NULL, NULL, NULL, NULL, 'STARTED', NULL, NULL, NULL, 382855486831771015, NULL, NULL, '2026-11-22 11:31:01.406522+00', '2026-11-22 11:31:01.448862+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487816228079, 180143985094852610, 5, 'loop.started', 'start', NULL, NULL, 321450964469417014, NULL, 'STARTED', '{"status": "STARTED", "context": {"mode": "parallel", "size": 4, "items": {"v": [1, 2, 3, 4]}, "context_id": 1299042206693411932, "max_in_flight": 2}}', NULL, NULL, 382855486831771015, NULL, NULL, '2026-11-22 11:31:01.406522+00', '2026-11-22 11:31:01.448969+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487816228079, 180143985094852611, 5, 'command.issued', 'start', 3440142947137031269, NULL, 321450964469417014, 0, 'PENDING', '{"status": "PENDING", "context": {"more": true, "segment": 0}}', NULL, 'issued:3440142947137031269', 382855486831771015, NULL, NULL, '2026-11-22 11:31:01.406522+00', '2026-11-22 11:31:01.448984+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487816228079, 180143985094852612, 5, 'command.issued', 'start', 2334505863788182854, NULL, 321450964469417014, 1, 'PENDING', '{"status": "PENDING", "context": {"more": true, "segment": 0}}', NULL, 'issued:2334505863788182854', 382855486831771015, NULL, NULL, '2026-11-22 11:31:01.406522+00', '2026-11-22 11:31:01.44903+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855488002979782, 540431955284492288, 15, 'playbook.started', NULL, NULL, NULL, NULL, NULL, 'STARTED', '{"status": "STARTED", "context": {"path": "replay/retry", "depth": 0, "version": 1, "workload": {"v": {}}, "catalog_id": 382855486984803658}}', '{"asked": "3fc5d728613cffe684d28b15ae2ea7f9", "nonce": "17611ee815d7d135"}', 'start', 382855486984803658, NULL, NULL, '2026-11-22 11:31:01.450717+00', '2026-11-22 11:31:01.471312+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391056957440, 3, 'command.completed', 'start', 4594888788791695077, 1, NULL, NULL, 'COMPLETED', '{"status": "COMPLETED"}', '{"duration_ms": 1}', 'done:4594888788791695077', 382855486582070777, NULL, 'worker-39e42df87f2f', '2026-11-22 11:31:01.44+00', '2026-11-22 11:31:01.505112+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855488002979782, 540431955284492289, 15, 'step.enter', 'start', NULL, NULL, NULL, NULL, 'STARTED', NULL, NULL, NULL, 382855486984803658, NULL, NULL, '2026-11-22 11:31:01.450717+00', '2026-11-22 11:31:01.516698+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855488002979782, 540431955284492290, 15, 'child.started', 'start', 3964591098634370907, NULL, NULL, NULL, 'STARTED', '{"status": "STARTED", "context": {"more": false, "path": "replay/child", "attempt": 1, "segment": 0, "child_id": 382855488271797739}}', NULL, 'issued:3964591098634370907', 382855486984803658, NULL, NULL, '2026-11-22 11:31:01.450717+00', '2026-11-22 11:31:01.516822+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855488271797739, 432345564227600384, 12, 'playbook.started', NULL, NULL, NULL, NULL, NULL, 'STARTED', '{"status": "STARTED", "context": {"path": "replay/child", "depth": 1, "parent": {"step": "start", "command_id": 3964591098634370907, "iter_index": -1, "loop_epoch": 0}, "version": 1, "workload": {"v": {"n": 1, "fails": true}}}}', NULL, 'start', 382855486686312526, 382855488002979782, NULL, '2026-11-22 11:31:01.450717+00', '2026-11-22 11:31:01.519326+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391056957441, 3, 'ctx.updated', 'start', NULL, NULL, NULL, NULL, NULL, '{"status": "OK", "context": {"set": {"factor": {"v": 3}}}}', NULL, NULL, 382855486582070777, NULL, NULL, '2026-11-22 11:31:01.44+00', '2026-11-22 11:31:01.535591+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391056957442, 3, 'step.exit', 'start', NULL, NULL, NULL, NULL, 'COMPLETED', '{"status": "COMPLETED", "context": {"arcs": ["each"], "noop": true}, "reference": {"ref": "noetl://execution/382855487082347372/result/start/0", "kind": "result_ref", "label": "start", "ref_id": 0, "execution_id": 382855487082347372}}', NULL, NULL, 382855486582070777, NULL, NULL, '2026-11-22 11:31:01.44+00', '2026-11-22 11:31:01.535724+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391056957443, 3, 'step.enter', 'each', NULL, NULL, NULL, NULL, 'STARTED', NULL, NULL, NULL, 382855486582070777, NULL, NULL, '2026-11-22 11:31:01.44+00', '2026-11-22 11:31:01.535735+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391056957444, 3, 'loop.started', 'each', NULL, NULL, 5115758414269443409, NULL, 'STARTED', '{"status": "STARTED", "context": {"mode": "parallel", "size": 20, "items": {"v": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}, "context_id": 1551956257476871462, "max_in_flight": 8}}', NULL, NULL, 382855486582070777, NULL, NULL, '2026-11-22 11:31:01.44+00', '2026-11-22 11:31:01.535738+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391056957445, 3, 'command.issued', 'each', 4377728957430312380, NULL, 5115758414269443409, 0, 'PENDING', NULL, NULL, 'issued:4377728957430312380', 382855486582070777, NULL, NULL, '2026-11-22 11:31:01.44+00', '2026-11-22 11:31:01.535743+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391056957446, 3, 'command.issued', 'each', 1825857277218949258, NULL, 5115758414269443409, 1, 'PENDING', NULL, NULL, 'issued:1825857277218949258', 382855486582070777, NULL, NULL, '2026-11-22 11:31:01.44+00', '2026-11-22 11:31:01.535748+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391056957447, 3, 'command.issued', 'each', 4231548549433187432, NULL, 5115758414269443409, 2, 'PENDING', NULL, NULL, 'issued:4231548549433187432', 382855486582070777, NULL, NULL, '2026-11-22 11:31:01.44+00', '2026-11-22 11:31:01.535751+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391056957448, 3, 'command.issued', 'each', 8812780771614634103, NULL, 5115758414269443409, 3, 'PENDING', NULL, NULL, 'issued:8812780771614634103', 382855486582070777, NULL, NULL, '2026-11-22 11:31:01.44+00', '2026-11-22 11:31:01.535753+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391056957449, 3, 'command.issued', 'each', 5110259685276101679, NULL, 5115758414269443409, 4, 'PENDING', NULL, NULL, 'issued:5110259685276101679', 382855486582070777, NULL, NULL, '2026-11-22 11:31:01.44+00', '2026-11-22 11:31:01.535756+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391056957450, 3, 'command.issued', 'each', 8822252289454655067, NULL, 5115758414269443409, 5, 'PENDING', NULL, NULL, 'issued:8822252289454655067', 382855486582070777, NULL, NULL, '2026-11-22 11:31:01.44+00', '2026-11-22 11:31:01.535758+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391056957451, 3, 'command.issued', 'each', 6236173122363767414, NULL, 5115758414269443409, 6, 'PENDING', NULL, NULL, 'issued:6236173122363767414', 382855486582070777, NULL, NULL, '2026-11-22 11:31:01.44+00', '2026-11-22 11:31:01.535759+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391056957452, 3, 'command.issued', 'each', 7811875606267072549, NULL, 5115758414269443409, 7, 'PENDING', NULL, NULL, 'issued:7811875606267072549', 382855486582070777, NULL, NULL, '2026-11-22 11:31:01.44+00', '2026-11-22 11:31:01.535763+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855488271797739, 432345564227600385, 12, 'step.enter', 'start', NULL, NULL, NULL, NULL, 'STARTED', NULL, NULL, NULL, 382855486686312526, 382855488002979782, NULL, '2026-11-22 11:31:01.450717+00', '2026-11-22 11:31:01.553369+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855488271797739, 432345564227600386, 12, 'command.issued', 'start', 5810757811798803925, NULL, NULL, NULL, 'PENDING', NULL, '{"pool": "default", "tool_kind": "python"}', 'issued:5810757811798803925', 382855486686312526, 382855488002979782, NULL, '2026-11-22 11:31:01.450717+00', '2026-11-22 11:31:01.553457+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487816228079, 180143985094885376, 5, 'command.completed', 'start', 3440142947137031269, 1, 321450964469417014, 0, 'COMPLETED', '{"status": "COMPLETED", "reference": {"ref": "noetl://execution/382855487816228079/result/start/6791663767006768781", "kind": "result_ref", "bytes": 19, "label": "start", "shape": "pipeline", "ref_id": 6791663767006768781, "sha256": "01879defa795be5fe23f926613a09476077e3a6ebbbf2e358f6e08154dd164c8", "content_type": "application/json", "execution_id": 382855487816228079}}', '{"duration_ms": 212}', 'done:3440142947137031269', 382855486831771015, NULL, 'worker-39e42df87f2f', '2026-11-22 11:31:01.713+00', '2026-11-22 11:31:01.738467+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487816228079, 180143985094885377, 5, 'child.started', 'start', 7415285900404674464, NULL, 321450964469417014, 0, 'STARTED', '{"status": "STARTED", "context": {"more": true, "path": "replay/child", "prior": {"ref": "noetl://execution/382855487816228079/result/start/6791663767006768781", "kind": "result_ref", "bytes": 19, "label": "start", "shape": "pipeline", "ref_id": 6791663767006768781, "sha256": "01879defa795be5fe23f926613a09476077e3a6ebbbf2e358f6e08154dd164c8", "content_type": "application/json", "execution_id": 382855487816228079}, "attempt": 1, "segment": 1, "child_id": 382855489262590840}}', NULL, 'issued:7415285900404674464', 382855486831771015, NULL, NULL, '2026-11-22 11:31:01.713+00', '2026-11-22 11:31:01.754212+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855489262590840, 36028797018996737, 1, 'step.enter', 'start', NULL, NULL, NULL, NULL, 'STARTED', NULL, NULL, NULL, 382855486686312526, 382855487816228079, NULL, '2026-11-22 11:31:01.713+00', '2026-11-22 11:31:01.770313+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855489262590840, 36028797018996736, 1, 'playbook.started', NULL, NULL, NULL, NULL, NULL, 'STARTED', '{"status": "STARTED", "context": {"path": "replay/child", "depth": 1, "parent": {"step": "start", "command_id": 7415285900404674464, "iter_index": 0, "loop_epoch": 321450964469417014}, "version": 1, "workload": {"v": {"n": 11, "fails": false}}}}', NULL, 'start', 382855486686312526, 382855487816228079, NULL, '2026-11-22 11:31:01.713+00', '2026-11-22 11:31:01.756512+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487816228079, 180143985094918145, 5, 'child.started', 'start', 4710721050536267882, NULL, 321450964469417014, 1, 'STARTED', '{"status": "STARTED", "context": {"more": true, "path": "replay/child", "prior": {"ref": "noetl://execution/382855487816228079/result/start/7922499513858092122", "kind": "result_ref", "bytes": 19, "label": "start", "shape": "pipeline", "ref_id": 7922499513858092122, "sha256": "8aa49fcda79fa32619abc1827895573fa35bbecbf8b7d54e0e93dc985e5336b4", "content_type": "application/json", "execution_id": 382855487816228079}, "attempt": 1, "segment": 1, "child_id": 382855489320965918}}', NULL, 'issued:4710721050536267882', 382855486831771015, NULL, NULL, '2026-11-22 11:31:01.74+00', '2026-11-22 11:31:01.770903+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855489320965918, 468374361246564352, 13, 'playbook.started', NULL, NULL, NULL, NULL, NULL, 'STARTED', '{"status": "STARTED", "context": {"path": "replay/child", "depth": 1, "parent": {"step": "start", "command_id": 4710721050536267882, "iter_index": 1, "loop_epoch": 321450964469417014}, "version": 1, "workload": {"v": {"n": 12, "fails": false}}}}', NULL, 'start', 382855486686312526, 382855487816228079, NULL, '2026-11-22 11:31:01.74+00', '2026-11-22 11:31:01.77854+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391057121281, 3, 'command.issued', 'each', 3368583214509476670, NULL, 5115758414269443409, 12, 'PENDING', NULL, NULL, 'issued:3368583214509476670', 382855486582070777, NULL, NULL, '2026-11-22 11:31:02.637+00', '2026-11-22 11:31:02.691756+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391057154049, 3, 'command.issued', 'each', 1435591216264417956, NULL, 5115758414269443409, 13, 'PENDING', NULL, NULL, 'issued:1435591216264417956', 382855486582070777, NULL, NULL, '2026-11-22 11:31:02.66+00', '2026-11-22 11:31:02.713622+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391057186817, 3, 'command.issued', 'each', 5465392182526582534, NULL, 5115758414269443409, 14, 'PENDING', NULL, NULL, 'issued:5465392182526582534', 382855486582070777, NULL, NULL, '2026-11-22 11:31:02.94+00', '2026-11-22 11:31:02.982516+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487816228079, 180143985094918144, 5, 'command.completed', 'start', 2334505863788182854, 1, 321450964469417014, 1, 'COMPLETED', '{"status": "COMPLETED", "reference": {"ref": "noetl://execution/382855487816228079/result/start/7922499513858092122", "kind": "result_ref", "bytes": 19, "label": "start", "shape": "pipeline", "ref_id": 7922499513858092122, "sha256": "8aa49fcda79fa32619abc1827895573fa35bbecbf8b7d54e0e93dc985e5336b4", "content_type": "application/json", "execution_id": 382855487816228079}}', '{"duration_ms": 199}', 'done:2334505863788182854', 382855486831771015, NULL, 'worker-39e42df87f2f', '2026-11-22 11:31:01.74+00', '2026-11-22 11:31:01.758133+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391057055744, 3, 'command.completed', 'each', 4231548549433187432, 1, 5115758414269443409, 2, 'COMPLETED', '{"status": "COMPLETED", "reference": {"ref": "noetl://execution/382855487082347372/result/each/3714409984987712552", "kind": "result_ref", "bytes": 13, "label": "each", "ref_id": 3714409984987712552, "sha256": "21d8007cad8652bcb8be93d131148432be92f2b4544c589e65f3c527f7fbd981", "content_type": "application/json", "execution_id": 382855487082347372}}', '{"duration_ms": 702}', 'done:4231548549433187432', 382855486582070777, NULL, 'worker-39e42df87f2f', '2026-11-22 11:31:02.325+00', '2026-11-22 11:31:02.338713+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391057121280, 3, 'command.completed', 'each', 5110259685276101679, 1, 5115758414269443409, 4, 'COMPLETED', '{"status": "COMPLETED", "reference": {"ref": "noetl://execution/382855487082347372/result/each/2052284839529951625", "kind": "result_ref", "bytes": 14, "label": "each", "ref_id": 2052284839529951625, "sha256": "cf6ce80ca6c6dc9713503eded2c53cdc91460b0bd97c0beb075c7f4cb003d69e", "content_type": "application/json", "execution_id": 382855487082347372}}', '{"duration_ms": 897}', 'done:5110259685276101679', 382855486582070777, NULL, 'worker-39e42df87f2f', '2026-11-22 11:31:02.637+00', '2026-11-22 11:31:02.658948+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391057154048, 3, 'command.completed', 'each', 8822252289454655067, 1, 5115758414269443409, 5, 'COMPLETED', '{"status": "COMPLETED", "reference": {"ref": "noetl://execution/382855487082347372/result/each/1455558358389361215", "kind": "result_ref", "bytes": 14, "label": "each", "ref_id": 1455558358389361215, "sha256": "e520d3a2626163dfb3c660b0ba5296e0a57f5ece1d67f00afa518b5a190a9e21", "content_type": "application/json", "execution_id": 382855487082347372}}', '{"duration_ms": 911}', 'done:8822252289454655067', 382855486582070777, NULL, 'worker-39e42df87f2f', '2026-11-22 11:31:02.66+00', '2026-11-22 11:31:02.692419+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391057186816, 3, 'command.completed', 'each', 6236173122363767414, 1, 5115758414269443409, 6, 'COMPLETED', '{"status": "COMPLETED", "reference": {"ref": "noetl://execution/382855487082347372/result/each/8976483157191368942", "kind": "result_ref", "bytes": 14, "label": "each", "ref_id": 8976483157191368942, "sha256": "c66ea39f9003d336a7fdce43769b2c9778be5f3005a28bbb6d8a1a2c6148d839", "content_type": "application/json", "execution_id": 382855487082347372}}', '{"duration_ms": 897}', 'done:6236173122363767414', 382855486582070777, NULL, 'worker-39e42df87f2f', '2026-11-22 11:31:02.94+00', '2026-11-22 11:31:02.965558+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391057219584, 3, 'command.completed', 'each', 7811875606267072549, 1, 5115758414269443409, 7, 'COMPLETED', '{"status": "COMPLETED", "reference": {"ref": "noetl://execution/382855487082347372/result/each/8055263080809339389", "kind": "result_ref", "bytes": 14, "label": "each", "ref_id": 8055263080809339389, "sha256": "52bd0f85713531a1bdafca6f3c26679d6a2c2e411d9167f5652f88bcaae4b9ac", "content_type": "application/json", "execution_id": 382855487082347372}}', '{"duration_ms": 896}', 'done:7811875606267072549', 382855486582070777, NULL, 'worker-39e42df87f2f', '2026-11-22 11:31:02.966+00', '2026-11-22 11:31:02.995199+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855489262590840, 36028797018996738, 1, 'command.issued', 'start', 1317625975005365161, NULL, NULL, NULL, 'PENDING', NULL, '{"pool": "default", "tool_kind": "python"}', 'issued:1317625975005365161', 382855486686312526, 382855487816228079, NULL, '2026-11-22 11:31:01.713+00', '2026-11-22 11:31:01.770404+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855489320965918, 468374361246564353, 13, 'step.enter', 'start', NULL, NULL, NULL, NULL, 'STARTED', NULL, NULL, NULL, 382855486686312526, 382855487816228079, NULL, '2026-11-22 11:31:01.74+00', '2026-11-22 11:31:01.789996+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855489320965918, 468374361246564354, 13, 'command.issued', 'start', 468923279178210703, NULL, NULL, NULL, 'PENDING', NULL, '{"pool": "default", "tool_kind": "python"}', 'issued:468923279178210703', 382855486686312526, 382855487816228079, NULL, '2026-11-22 11:31:01.74+00', '2026-11-22 11:31:01.790074+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391057219585, 3, 'command.issued', 'each', 1480848526921823743, NULL, 5115758414269443409, 15, 'PENDING', NULL, NULL, 'issued:1480848526921823743', 382855486582070777, NULL, NULL, '2026-11-22 11:31:02.966+00', '2026-11-22 11:31:03.009969+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855488002979782, 540431955284525057, 15, 'task.ended', 'start', NULL, NULL, NULL, NULL, 'RETRYING', '{"status": "RETRYING", "context": {"attempt": 2, "timer_id": 193381167172579528}}', NULL, NULL, 382855486984803658, NULL, NULL, '2026-11-22 11:31:02.944+00', '2026-11-22 11:31:03.030457+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391056990208, 3, 'command.completed', 'each', 4377728957430312380, 1, 5115758414269443409, 0, 'COMPLETED', '{"status": "COMPLETED", "reference": {"ref": "noetl://execution/382855487082347372/result/each/8785663599869091918", "kind": "result_ref", "bytes": 13, "label": "each", "ref_id": 8785663599869091918, "sha256": "e1d7eae4b9b7bd4453383627332e69f80856078231ecaa5eb8dcfa5b98c5b2f4", "content_type": "application/json", "execution_id": 382855487082347372}}', '{"duration_ms": 401}', 'done:4377728957430312380', 382855486582070777, NULL, 'worker-39e42df87f2f', '2026-11-22 11:31:02.022+00', '2026-11-22 11:31:02.036727+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391056990209, 3, 'command.issued', 'each', 8728654680602694685, NULL, 5115758414269443409, 8, 'PENDING', NULL, NULL, 'issued:8728654680602694685', 382855486582070777, NULL, NULL, '2026-11-22 11:31:02.022+00', '2026-11-22 11:31:02.05539+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391057022977, 3, 'command.issued', 'each', 6320851436926953939, NULL, 5115758414269443409, 9, 'PENDING', NULL, NULL, 'issued:6320851436926953939', 382855486582070777, NULL, NULL, '2026-11-22 11:31:02.049+00', '2026-11-22 11:31:02.088109+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391057055745, 3, 'command.issued', 'each', 8678891237107083974, NULL, 5115758414269443409, 10, 'PENDING', NULL, NULL, 'issued:8678891237107083974', 382855486582070777, NULL, NULL, '2026-11-22 11:31:02.325+00', '2026-11-22 11:31:02.3453+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391057088513, 3, 'command.issued', 'each', 7214758456270106528, NULL, 5115758414269443409, 11, 'PENDING', NULL, NULL, 'issued:7214758456270106528', 382855486582070777, NULL, NULL, '2026-11-22 11:31:02.357+00', '2026-11-22 11:31:02.381478+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855488271797739, 432345564227633152, 12, 'command.failed', 'start', 5810757811798803925, 1, NULL, NULL, 'FAILED', '{"error": {"code": "TOOL_EXCEPTION", "kind": "exception", "line": 3, "step": "start", "task": "start", "message": "ValueError: as it was asked to", "exception": "ValueError", "retryable": false}, "status": "FAILED"}', '{"duration_ms": 596}', 'done:5810757811798803925', 382855486686312526, 382855488002979782, 'worker-39e42df87f2f', '2026-11-22 11:31:02.944+00', '2026-11-22 11:31:02.998812+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855488271797739, 432345564227633153, 12, 'step.exit', 'start', NULL, NULL, NULL, NULL, 'FAILED', '{"error": {"code": "TOOL_EXCEPTION", "kind": "exception", "line": 3, "step": "start", "task": "start", "message": "ValueError: as it was asked to", "exception": "ValueError", "retryable": false}, "status": "FAILED"}', NULL, NULL, 382855486686312526, 382855488002979782, NULL, '2026-11-22 11:31:02.944+00', '2026-11-22 11:31:03.017144+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855488271797739, 432345564227633154, 12, 'playbook.failed', NULL, NULL, NULL, NULL, NULL, 'FAILED', '{"error": {"code": "TOOL_EXCEPTION", "kind": "exception", "line": 3, "step": "start", "task": "start", "message": "ValueError: as it was asked to", "exception": "ValueError", "retryable": false}, "status": "FAILED"}', NULL, 'end', 382855486686312526, 382855488002979782, NULL, '2026-11-22 11:31:02.944+00', '2026-11-22 11:31:03.017249+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855488002979782, 540431955284525056, 15, 'child.ended', 'start', 3964591098634370907, NULL, NULL, NULL, 'FAILED', '{"error": {"code": "TOOL_EXCEPTION", "kind": "exception", "line": 3, "step": "start", "task": "start", "message": "ValueError: as it was asked to", "exception": "ValueError", "retryable": false}, "status": "FAILED", "context": {"status": "FAILED"}}', NULL, 'child:382855488271797739', 382855486984803658, NULL, NULL, '2026-11-22 11:31:02.944+00', '2026-11-22 11:31:03.022909+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391057022976, 3, 'command.completed', 'each', 1825857277218949258, 1, 5115758414269443409, 1, 'COMPLETED', '{"status": "COMPLETED", "reference": {"ref": "noetl://execution/382855487082347372/result/each/8616185409958343360", "kind": "result_ref", "bytes": 13, "label": "each", "ref_id": 8616185409958343360, "sha256": "50d1cf2bfffe543934cd0ccc0d3a8c28489f7077e03514ba87464865f5a4d8b1", "content_type": "application/json", "execution_id": 382855487082347372}}', '{"duration_ms": 426}', 'done:1825857277218949258', 382855486582070777, NULL, 'worker-39e42df87f2f', '2026-11-22 11:31:02.049+00', '2026-11-22 11:31:02.071827+00');
INSERT INTO noetl.event_20261116_00 VALUES (382855487082347372, 108086391057088512, 3, 'command.completed', 'each', 8812780771614634103, 1, 5115758414269443409, 3, 'COMPLETED', '{"status": "COMPLETED", "reference": {"ref": "noetl://execution/382855487082347372/result/each/5731394486018804479", "kind": "result_ref", "bytes": 14, "label": "each", "ref_id": 5731394486018804479, "sha256": "8addb9c319f9a740b057e738c60d599e3b8f86f294e875ed94a80136020bb817", "content_type": "application/json", "execution_id": 382855487082347372}}', '{"duration_ms": 733}', 'done:8812780771614634103', 382855486582070777, NULL, 'worker-39e42df87f2f', '2026-11-22 11:31:02.357+00', '2026-11-22 11:31:02.370679+00');
INSERT INTO noetl.execution VALUES (382855487082347372, 3, 382855486582070777, 'replay/loop', 1, NULL, NULL, NULL, '2026-11-22 11:31:01.233373+00', 'RUNNING', 'each', '{"steps": {"each": {"items": {"done": 7, "more": false, "total": 20, "failed": 0, "in_flight": 8}, "status": "running", "entered": 1, "attempts": 1, "ended_at": null, "started_at": "2026-11-22T11:31:01.440000+00:00"}, "start": {"items": null, "status": "completed", "entered": 1, "attempts": 1, "ended_at": "2026-11-22T11:31:01.440000+00:00", "started_at": "2026-11-22T11:31:01.231557+00:00"}}, "counts": {"events": 30, "commands_failed": 0, "commands_issued": 16, "children_started": 0, "commands_cancelled": 0, "commands_completed": 8}}', NULL, NULL, NULL, 108086391057186817, '2026-11-22 11:31:03.00156+00', NULL);
INSERT INTO noetl.execution VALUES (382855488002979782, 15, 382855486984803658, 'replay/retry', 1, NULL, NULL, NULL, '2026-11-22 11:31:01.454991+00', 'RUNNING', 'start', '{"steps": {"start": {"items": null, "status": "running", "entered": 1, "attempts": 1, "ended_at": null, "started_at": "2026-11-22T11:31:01.450717+00:00"}}, "counts": {"events": 3, "commands_failed": 0, "commands_issued": 0, "children_started": 1, "commands_cancelled": 0, "commands_completed": 0}}', NULL, NULL, NULL, 540431955284492290, '2026-11-22 11:31:01.645193+00', NULL);
INSERT INTO noetl.execution VALUES (382855488271797739, 12, 382855486686312526, 'replay/child', 1, 382855488002979782, 3964591098634370907, NULL, '2026-11-22 11:31:01.516176+00', 'RUNNING', 'start', '{"steps": {"start": {"items": null, "status": "running", "entered": 1, "attempts": 1, "ended_at": null, "started_at": "2026-11-22T11:31:01.450717+00:00"}}, "counts": {"events": 3, "commands_failed": 0, "commands_issued": 1, "children_started": 0, "commands_cancelled": 0, "commands_completed": 0}}', NULL, NULL, NULL, 432345564227600386, '2026-11-22 11:31:01.711261+00', NULL);
INSERT INTO noetl.execution VALUES (382855489320965918, 13, 382855486686312526, 'replay/child', 1, 382855487816228079, 4710721050536267882, NULL, '2026-11-22 11:31:01.770629+00', 'RUNNING', 'start', '{"steps": {"start": {"items": null, "status": "running", "entered": 1, "attempts": 1, "ended_at": null, "started_at": "2026-11-22T11:31:01.740000+00:00"}}, "counts": {"events": 3, "commands_failed": 0, "commands_issued": 1, "children_started": 0, "commands_cancelled": 0, "commands_completed": 0}}', NULL, NULL, NULL, 468374361246564354, '2026-11-22 11:31:01.883592+00', NULL);
INSERT INTO noetl.execution VALUES (382855489262590840, 1, 382855486686312526, 'replay/child', 1, 382855487816228079, 7415285900404674464, NULL, '2026-11-22 11:31:01.754056+00', 'RUNNING', 'start', '{"steps": {"start": {"items": null, "status": "running", "entered": 1, "attempts": 1, "ended_at": null, "started_at": "2026-11-22T11:31:01.713000+00:00"}}, "counts": {"events": 3, "commands_failed": 0, "commands_issued": 1, "children_started": 0, "commands_cancelled": 0, "commands_completed": 0}}', NULL, NULL, NULL, 36028797018996738, '2026-11-22 11:31:01.898648+00', NULL);
INSERT INTO noetl.execution VALUES (382855487816228079, 5, 382855486831771015, 'replay/parent', 1, NULL, NULL, NULL, '2026-11-22 11:31:01.416166+00', 'RUNNING', 'start', '{"steps": {"start": {"items": {"done": 0, "more": false, "total": 4, "failed": 0, "in_flight": 2}, "status": "running", "entered": 1, "attempts": 1, "ended_at": null, "started_at": "2026-11-22T11:31:01.406522+00:00"}}, "counts": {"events": 9, "commands_failed": 0, "commands_issued": 2, "children_started": 2, "commands_cancelled": 0, "commands_completed": 2}}', NULL, NULL, NULL, 180143985094918145, '2026-11-22 11:31:01.906376+00', NULL);
INSERT INTO noetl.execution_shard VALUES ('ingest', 0, 'ingest-98e96cd423fd', 1, '2026-11-22 11:31:06.056543+00', '2026-11-22 11:31:02.056543+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 1, 'ingest-98e96cd423fd', 1, '2026-11-22 11:31:06.056573+00', '2026-11-22 11:31:02.056574+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 2, 'ingest-98e96cd423fd', 1, '2026-11-22 11:31:06.056577+00', '2026-11-22 11:31:02.056577+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 3, 'ingest-98e96cd423fd', 1, '2026-11-22 11:31:06.056578+00', '2026-11-22 11:31:02.056578+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 4, 'ingest-98e96cd423fd', 1, '2026-11-22 11:31:06.05658+00', '2026-11-22 11:31:02.05658+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 5, 'ingest-98e96cd423fd', 1, '2026-11-22 11:31:06.056581+00', '2026-11-22 11:31:02.056581+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 6, 'ingest-98e96cd423fd', 1, '2026-11-22 11:31:06.056583+00', '2026-11-22 11:31:02.056583+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 7, 'ingest-98e96cd423fd', 1, '2026-11-22 11:31:06.056584+00', '2026-11-22 11:31:02.056584+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 8, 'ingest-98e96cd423fd', 1, '2026-11-22 11:31:06.056587+00', '2026-11-22 11:31:02.056587+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 9, 'ingest-98e96cd423fd', 1, '2026-11-22 11:31:06.056589+00', '2026-11-22 11:31:02.056589+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 10, 'ingest-98e96cd423fd', 1, '2026-11-22 11:31:06.05659+00', '2026-11-22 11:31:02.05659+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 11, 'ingest-98e96cd423fd', 1, '2026-11-22 11:31:06.056591+00', '2026-11-22 11:31:02.056591+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 12, 'ingest-98e96cd423fd', 1, '2026-11-22 11:31:06.056593+00', '2026-11-22 11:31:02.056593+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 0, 'compute-9bd110f8ead6', 1, '2026-11-22 11:31:06.173886+00', '2026-11-22 11:31:02.173887+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 1, 'compute-9bd110f8ead6', 1, '2026-11-22 11:31:06.173931+00', '2026-11-22 11:31:02.173931+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 2, 'compute-9bd110f8ead6', 1, '2026-11-22 11:31:06.173935+00', '2026-11-22 11:31:02.173935+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 13, 'ingest-98e96cd423fd', 1, '2026-11-22 11:31:06.056595+00', '2026-11-22 11:31:02.056595+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 14, 'ingest-98e96cd423fd', 1, '2026-11-22 11:31:06.056597+00', '2026-11-22 11:31:02.056597+00');
INSERT INTO noetl.execution_shard VALUES ('ingest', 15, 'ingest-98e96cd423fd', 1, '2026-11-22 11:31:06.056599+00', '2026-11-22 11:31:02.056599+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 3, 'compute-9bd110f8ead6', 1, '2026-11-22 11:31:06.173937+00', '2026-11-22 11:31:02.173937+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 4, 'compute-9bd110f8ead6', 1, '2026-11-22 11:31:06.173938+00', '2026-11-22 11:31:02.173938+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 5, 'compute-9bd110f8ead6', 1, '2026-11-22 11:31:06.17394+00', '2026-11-22 11:31:02.17394+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 6, 'compute-9bd110f8ead6', 1, '2026-11-22 11:31:06.173941+00', '2026-11-22 11:31:02.173941+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 7, 'compute-9bd110f8ead6', 1, '2026-11-22 11:31:06.173942+00', '2026-11-22 11:31:02.173942+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 8, 'compute-9bd110f8ead6', 1, '2026-11-22 11:31:06.173943+00', '2026-11-22 11:31:02.173943+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 9, 'compute-9bd110f8ead6', 1, '2026-11-22 11:31:06.173945+00', '2026-11-22 11:31:02.173945+00');
INSERT INTO noetl.execution_shard VALUES ('compactor', 0, NULL, 0, NULL, '2026-11-22 11:31:00.643377+00');
INSERT INTO noetl.execution_shard VALUES ('compactor', 1, NULL, 0, NULL, '2026-11-22 11:31:00.643381+00');
INSERT INTO noetl.execution_shard VALUES ('compactor', 2, NULL, 0, NULL, '2026-11-22 11:31:00.643384+00');
INSERT INTO noetl.execution_shard VALUES ('compactor', 3, NULL, 0, NULL, '2026-11-22 11:31:00.643386+00');
INSERT INTO noetl.execution_shard VALUES ('compactor', 4, NULL, 0, NULL, '2026-11-22 11:31:00.643388+00');
INSERT INTO noetl.execution_shard VALUES ('compactor', 5, NULL, 0, NULL, '2026-11-22 11:31:00.64339+00');
INSERT INTO noetl.execution_shard VALUES ('compactor', 6, NULL, 0, NULL, '2026-11-22 11:31:00.643392+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 10, 'compute-9bd110f8ead6', 1, '2026-11-22 11:31:06.173948+00', '2026-11-22 11:31:02.173948+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 11, 'compute-9bd110f8ead6', 1, '2026-11-22 11:31:06.17395+00', '2026-11-22 11:31:02.17395+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 12, 'compute-9bd110f8ead6', 1, '2026-11-22 11:31:06.173951+00', '2026-11-22 11:31:02.173951+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 13, 'compute-9bd110f8ead6', 1, '2026-11-22 11:31:06.173952+00', '2026-11-22 11:31:02.173952+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 14, 'compute-9bd110f8ead6', 1, '2026-11-22 11:31:06.173953+00', '2026-11-22 11:31:02.173953+00');
INSERT INTO noetl.execution_shard VALUES ('compute', 15, 'compute-9bd110f8ead6', 1, '2026-11-22 11:31:06.173955+00', '2026-11-22 11:31:02.173955+00');
INSERT INTO noetl.execution_shard VALUES ('compactor', 7, NULL, 0, NULL, '2026-11-22 11:31:00.643394+00');
INSERT INTO noetl.execution_shard VALUES ('compactor', 8, NULL, 0, NULL, '2026-11-22 11:31:00.643408+00');
INSERT INTO noetl.execution_shard VALUES ('compactor', 9, NULL, 0, NULL, '2026-11-22 11:31:00.64341+00');
INSERT INTO noetl.execution_shard VALUES ('compactor', 10, NULL, 0, NULL, '2026-11-22 11:31:00.643412+00');
INSERT INTO noetl.execution_shard VALUES ('compactor', 11, NULL, 0, NULL, '2026-11-22 11:31:00.643414+00');
INSERT INTO noetl.execution_shard VALUES ('compactor', 12, NULL, 0, NULL, '2026-11-22 11:31:00.643416+00');
INSERT INTO noetl.execution_shard VALUES ('compactor', 13, NULL, 0, NULL, '2026-11-22 11:31:00.643418+00');
INSERT INTO noetl.execution_shard VALUES ('compactor', 14, NULL, 0, NULL, '2026-11-22 11:31:00.64342+00');
INSERT INTO noetl.execution_shard VALUES ('compactor', 15, NULL, 0, NULL, '2026-11-22 11:31:00.643422+00');
INSERT INTO noetl.execution_shard VALUES ('meta', 0, 'meta-768b88186682', 1, '2026-11-22 11:31:06.706661+00', '2026-11-22 11:31:02.706661+00');
INSERT INTO noetl.execution_state VALUES (382855487082347372, 3, 108086391057219585, '{"ctx": {"factor": {"v": 3}}, "path": "replay/loop", "active": {"each": {"loop": {"done": 8, "open": [8, 9, 10, 11, 12, 13, 14, 15], "size": 20, "epoch": 5115758414269443409, "items": {"v": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}, "context_id": 1551956257476871462, "issued_upto": 16, "max_in_flight": 8}, "cause": 108086391056957442, "activity": {}}}, "visits": {"each": 1, "start": 1}, "results": {"start": {"label": "start", "ref_id": 0, "execution_id": 382855487082347372}}, "started": true, "version": 1, "workload": {"v": {"numbers": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}}, "catalog_id": 382855486582070777, "execution_id": 382855487082347372, "last_event_id": 108086391057219585, "commands_issued": 17}');
INSERT INTO noetl.execution_state VALUES (382855488002979782, 15, 540431955284525057, '{"path": "replay/retry", "active": {"start": {"cause": 540431955284492289, "activity": {"attempt": 2, "timer_id": 193381167172579528}}}, "visits": {"start": 1}, "started": true, "version": 1, "workload": {"v": {}}, "catalog_id": 382855486984803658, "execution_id": 382855488002979782, "last_event_id": 540431955284525057}');
INSERT INTO noetl.execution_state VALUES (382855487816228079, 5, 180143985094918145, '{"path": "replay/parent", "active": {"start": {"loop": {"open": [0, 1], "size": 4, "epoch": 321450964469417014, "items": {"v": [1, 2, 3, 4]}, "children": {"0": {"more": true, "prior": {"bytes": 19, "label": "start", "shape": "pipeline", "ref_id": 6791663767006768781, "sha256": "01879defa795be5fe23f926613a09476077e3a6ebbbf2e358f6e08154dd164c8", "content_type": "application/json", "execution_id": 382855487816228079}, "segment": 1, "child_id": 382855489262590840, "command_id": 7415285900404674464}, "1": {"more": true, "prior": {"bytes": 19, "label": "start", "shape": "pipeline", "ref_id": 7922499513858092122, "sha256": "8aa49fcda79fa32619abc1827895573fa35bbecbf8b7d54e0e93dc985e5336b4", "content_type": "application/json", "execution_id": 382855487816228079}, "segment": 1, "child_id": 382855489320965918, "command_id": 4710721050536267882}}, "context_id": 1299042206693411932, "issued_upto": 2, "max_in_flight": 2}, "cause": 180143985094852609, "activity": {}}}, "visits": {"start": 1}, "started": true, "version": 1, "workload": {"v": {"numbers": [1, 2, 3, 4]}}, "catalog_id": 382855486831771015, "execution_id": 382855487816228079, "last_event_id": 180143985094918145, "commands_issued": 2}');
INSERT INTO noetl.execution_state VALUES (382855489262590840, 1, 36028797018996738, '{"path": "replay/child", "depth": 1, "active": {"start": {"cause": 36028797018996737, "activity": {"command_id": 1317625975005365161}}}, "visits": {"start": 1}, "started": true, "version": 1, "workload": {"v": {"n": 11, "fails": false}}, "catalog_id": 382855486686312526, "execution_id": 382855489262590840, "parent_place": {"step": "start", "command_id": 7415285900404674464, "iter_index": 0, "loop_epoch": 321450964469417014}, "last_event_id": 36028797018996738, "commands_issued": 1, "parent_execution_id": 382855487816228079}');
INSERT INTO noetl.execution_state VALUES (382855489320965918, 13, 468374361246564354, '{"path": "replay/child", "depth": 1, "active": {"start": {"cause": 468374361246564353, "activity": {"command_id": 468923279178210703}}}, "visits": {"start": 1}, "started": true, "version": 1, "workload": {"v": {"n": 12, "fails": false}}, "catalog_id": 382855486686312526, "execution_id": 382855489320965918, "parent_place": {"step": "start", "command_id": 4710721050536267882, "iter_index": 1, "loop_epoch": 321450964469417014}, "last_event_id": 468374361246564354, "commands_issued": 1, "parent_execution_id": 382855487816228079}');
INSERT INTO noetl.execution_state VALUES (382855488271797739, 12, 432345564227633154, '{"path": "replay/child", "depth": 1, "status": "FAILED", "visits": {"start": 1}, "failure": {"code": "TOOL_EXCEPTION", "kind": "exception", "line": 3, "step": "start", "task": "start", "message": "ValueError: as it was asked to", "exception": "ValueError", "retryable": false}, "started": true, "version": 1, "workload": {"v": {"n": 1, "fails": true}}, "catalog_id": 382855486686312526, "execution_id": 382855488271797739, "parent_place": {"step": "start", "command_id": 3964591098634370907, "iter_index": -1, "loop_epoch": 0}, "last_event_id": 432345564227633154, "commands_issued": 1, "parent_execution_id": 382855488002979782}');
INSERT INTO noetl.migration VALUES ('0001_pre_schema.sql', '2026-11-22 11:31:00.297357+00');
INSERT INTO noetl.migration VALUES ('0002_pre_command_details.sql', '2026-11-22 11:31:00.310332+00');
INSERT INTO noetl.migration VALUES ('0003_pre_compaction.sql', '2026-11-22 11:31:00.36828+00');
INSERT INTO noetl.migration VALUES ('0004_pre_status_reads.sql', '2026-11-22 11:31:00.380051+00');
INSERT INTO noetl.projection_checkpoint VALUES (5, 1, 180143985094950911, '2026-11-22 11:31:01.905278+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (2, 1, 72057594037960703, '2026-11-22 11:31:01.006011+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (1, 1, 36028797019029503, '2026-11-22 11:31:01.897553+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (4, 1, 144115188075888639, '2026-11-22 11:31:01.042438+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (6, 1, 216172782113816575, '2026-11-22 11:31:01.081294+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (7, 1, 252201579132780543, '2026-11-22 11:31:01.092933+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (8, 1, 288230376151744511, '2026-11-22 11:31:01.103217+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (9, 1, 324259173170708479, '2026-11-22 11:31:01.122384+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (10, 1, 360287970189672447, '2026-11-22 11:31:01.142699+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (3, 1, 108086391057219583, '2026-11-22 11:31:03.000915+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (0, 1, 32767, '2026-11-22 11:31:00.966053+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (14, 1, 504403158265528319, '2026-11-22 11:31:01.201145+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (11, 1, 396316767208636415, '2026-11-22 11:31:01.165966+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (15, 1, 540431955284525055, '2026-11-22 11:31:01.63545+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (12, 1, 432345564227633151, '2026-11-22 11:31:01.705339+00', 0);
INSERT INTO noetl.projection_checkpoint VALUES (13, 1, 468374361246597119, '2026-11-22 11:31:01.882607+00', 0);
INSERT INTO noetl.projection_state VALUES (382855488002979782, 540431955284492290, '{"path": "replay/retry", "active": {"start": {"cause": 540431955284492289, "activity": {"child_id": 382855488271797739, "command_id": 3964591098634370907}}}, "visits": {"start": 1}, "started": true, "version": 1, "workload": {"v": {}}, "catalog_id": 382855486984803658, "execution_id": 382855488002979782, "last_event_id": 540431955284492290}');
INSERT INTO noetl.projection_state VALUES (382855487082347372, 108086391057186817, '{"ctx": {"factor": {"v": 3}}, "path": "replay/loop", "active": {"each": {"loop": {"done": 7, "open": [7, 8, 9, 10, 11, 12, 13, 14], "size": 20, "epoch": 5115758414269443409, "items": {"v": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}, "context_id": 1551956257476871462, "issued_upto": 15, "max_in_flight": 8}, "cause": 108086391056957442, "activity": {}}}, "visits": {"each": 1, "start": 1}, "results": {"start": {"label": "start", "ref_id": 0, "execution_id": 382855487082347372}}, "started": true, "version": 1, "workload": {"v": {"numbers": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}}, "catalog_id": 382855486582070777, "execution_id": 382855487082347372, "last_event_id": 108086391057186817, "commands_issued": 16}');
INSERT INTO noetl.projection_state VALUES (382855487816228079, 180143985094918145, '{"path": "replay/parent", "active": {"start": {"loop": {"open": [0, 1], "size": 4, "epoch": 321450964469417014, "items": {"v": [1, 2, 3, 4]}, "children": {"0": {"more": true, "prior": {"bytes": 19, "label": "start", "shape": "pipeline", "ref_id": 6791663767006768781, "sha256": "01879defa795be5fe23f926613a09476077e3a6ebbbf2e358f6e08154dd164c8", "content_type": "application/json", "execution_id": 382855487816228079}, "segment": 1, "child_id": 382855489262590840, "command_id": 7415285900404674464}, "1": {"more": true, "prior": {"bytes": 19, "label": "start", "shape": "pipeline", "ref_id": 7922499513858092122, "sha256": "8aa49fcda79fa32619abc1827895573fa35bbecbf8b7d54e0e93dc985e5336b4", "content_type": "application/json", "execution_id": 382855487816228079}, "segment": 1, "child_id": 382855489320965918, "command_id": 4710721050536267882}}, "context_id": 1299042206693411932, "issued_upto": 2, "max_in_flight": 2}, "cause": 180143985094852609, "activity": {}}}, "visits": {"start": 1}, "started": true, "version": 1, "workload": {"v": {"numbers": [1, 2, 3, 4]}}, "catalog_id": 382855486831771015, "execution_id": 382855487816228079, "last_event_id": 180143985094918145, "commands_issued": 2}');
INSERT INTO noetl.projection_state VALUES (382855488271797739, 432345564227600386, '{"path": "replay/child", "depth": 1, "active": {"start": {"cause": 432345564227600385, "activity": {"command_id": 5810757811798803925}}}, "visits": {"start": 1}, "started": true, "version": 1, "workload": {"v": {"n": 1, "fails": true}}, "catalog_id": 382855486686312526, "execution_id": 382855488271797739, "parent_place": {"step": "start", "command_id": 3964591098634370907, "iter_index": -1, "loop_epoch": 0}, "last_event_id": 432345564227600386, "commands_issued": 1, "parent_execution_id": 382855488002979782}');
INSERT INTO noetl.projection_state VALUES (382855489320965918, 468374361246564354, '{"path": "replay/child", "depth": 1, "active": {"start": {"cause": 468374361246564353, "activity": {"command_id": 468923279178210703}}}, "visits": {"start": 1}, "started": true, "version": 1, "workload": {"v": {"n": 12, "fails": false}}, "catalog_id": 382855486686312526, "execution_id": 382855489320965918, "parent_place": {"step": "start", "command_id": 4710721050536267882, "iter_index": 1, "loop_epoch": 321450964469417014}, "last_event_id": 468374361246564354, "commands_issued": 1, "parent_execution_id": 382855487816228079}');
INSERT INTO noetl.projection_state VALUES (382855489262590840, 36028797018996738, '{"path": "replay/child", "depth": 1, "active": {"start": {"cause": 36028797018996737, "activity": {"command_id": 1317625975005365161}}}, "visits": {"start": 1}, "started": true, "version": 1, "workload": {"v": {"n": 11, "fails": false}}, "catalog_id": 382855486686312526, "execution_id": 382855489262590840, "parent_place": {"step": "start", "command_id": 7415285900404674464, "iter_index": 0, "loop_epoch": 321450964469417014}, "last_event_id": 36028797018996738, "commands_issued": 1, "parent_execution_id": 382855487816228079}');
INSERT INTO noetl.result_ref_20261116_00 VALUES (382855487816228079, 6791663767006768781, 'noetl://execution/382855487816228079/result/start/6791663767006768781', 'start', '', 'pipeline', 321450964469417014, -1, NULL, 'db', '', 'application/json', 19, '01879defa795be5fe23f926613a09476077e3a6ebbbf2e358f6e08154dd164c8', 'none', NULL, NULL, NULL, '\x7b226265666f7265223a7b226e223a31317d7d', NULL, '2026-11-22 11:31:01.735858+00', NULL, 'execution');
INSERT INTO noetl.result_ref_20261116_00 VALUES (382855487816228079, 7922499513858092122, 'noetl://execution/382855487816228079/result/start/7922499513858092122', 'start', '', 'pipeline', 321450964469417014, -1, NULL, 'db', '', 'application/json', 19, '8aa49fcda79fa32619abc1827895573fa35bbecbf8b7d54e0e93dc985e5336b4', 'none', NULL, NULL, NULL, '\x7b226265666f7265223a7b226e223a31327d7d', NULL, '2026-11-22 11:31:01.755066+00', NULL, 'execution');
INSERT INTO noetl.result_ref_20261116_00 VALUES (382855487082347372, 8785663599869091918, 'noetl://execution/382855487082347372/result/each/8785663599869091918', 'each', '', 'plain', 5115758414269443409, 0, NULL, 'db', '', 'application/json', 13, 'e1d7eae4b9b7bd4453383627332e69f80856078231ecaa5eb8dcfa5b98c5b2f4', 'none', NULL, NULL, NULL, '\x7b2270726f64756374223a337d', NULL, '2026-11-22 11:31:02.035284+00', NULL, 'execution');
INSERT INTO noetl.result_ref_20261116_00 VALUES (382855487082347372, 8616185409958343360, 'noetl://execution/382855487082347372/result/each/8616185409958343360', 'each', '', 'plain', 5115758414269443409, 1, NULL, 'db', '', 'application/json', 13, '50d1cf2bfffe543934cd0ccc0d3a8c28489f7077e03514ba87464865f5a4d8b1', 'none', NULL, NULL, NULL, '\x7b2270726f64756374223a367d', NULL, '2026-11-22 11:31:02.06923+00', NULL, 'execution');
INSERT INTO noetl.result_ref_20261116_00 VALUES (382855487082347372, 3714409984987712552, 'noetl://execution/382855487082347372/result/each/3714409984987712552', 'each', '', 'plain', 5115758414269443409, 2, NULL, 'db', '', 'application/json', 13, '21d8007cad8652bcb8be93d131148432be92f2b4544c589e65f3c527f7fbd981', 'none', NULL, NULL, NULL, '\x7b2270726f64756374223a397d', NULL, '2026-11-22 11:31:02.337224+00', NULL, 'execution');
INSERT INTO noetl.result_ref_20261116_00 VALUES (382855487082347372, 5731394486018804479, 'noetl://execution/382855487082347372/result/each/5731394486018804479', 'each', '', 'plain', 5115758414269443409, 3, NULL, 'db', '', 'application/json', 14, '8addb9c319f9a740b057e738c60d599e3b8f86f294e875ed94a80136020bb817', 'none', NULL, NULL, NULL, '\x7b2270726f64756374223a31327d', NULL, '2026-11-22 11:31:02.368802+00', NULL, 'execution');
INSERT INTO noetl.result_ref_20261116_00 VALUES (382855487082347372, 2052284839529951625, 'noetl://execution/382855487082347372/result/each/2052284839529951625', 'each', '', 'plain', 5115758414269443409, 4, NULL, 'db', '', 'application/json', 14, 'cf6ce80ca6c6dc9713503eded2c53cdc91460b0bd97c0beb075c7f4cb003d69e', 'none', NULL, NULL, NULL, '\x7b2270726f64756374223a31357d', NULL, '2026-11-22 11:31:02.657202+00', NULL, 'execution');
INSERT INTO noetl.result_ref_20261116_00 VALUES (382855487082347372, 1455558358389361215, 'noetl://execution/382855487082347372/result/each/1455558358389361215', 'each', '', 'plain', 5115758414269443409, 5, NULL, 'db', '', 'application/json', 14, 'e520d3a2626163dfb3c660b0ba5296e0a57f5ece1d67f00afa518b5a190a9e21', 'none', NULL, NULL, NULL, '\x7b2270726f64756374223a31387d', NULL, '2026-11-22 11:31:02.690794+00', NULL, 'execution');
INSERT INTO noetl.result_ref_20261116_00 VALUES (382855487082347372, 8976483157191368942, 'noetl://execution/382855487082347372/result/each/8976483157191368942', 'each', '', 'plain', 5115758414269443409, 6, NULL, 'db', '', 'application/json', 14, 'c66ea39f9003d336a7fdce43769b2c9778be5f3005a28bbb6d8a1a2c6148d839', 'none', NULL, NULL, NULL, '\x7b2270726f64756374223a32317d', NULL, '2026-11-22 11:31:02.961069+00', NULL, 'execution');
INSERT INTO noetl.result_ref_20261116_00 VALUES (382855487082347372, 8055263080809339389, 'noetl://execution/382855487082347372/result/each/8055263080809339389', 'each', '', 'plain', 5115758414269443409, 7, NULL, 'db', '', 'application/json', 14, '52bd0f85713531a1bdafca6f3c26679d6a2c2e411d9167f5652f88bcaae4b9ac', 'none', NULL, NULL, NULL, '\x7b2270726f64756374223a32347d', NULL, '2026-11-22 11:31:02.993489+00', NULL, 'execution');
INSERT INTO noetl.runtime VALUES (382855485671891930, 'worker_pool', 'worker-39e42df87f2f', 'worker-39e42df87f2f', '', 'ready', 6, 0, '{"pool_name": "default"}', '{"pid": 24120, "kind": "python", "version": "0.1.0", "hostname": "vm"}', '2026-11-22 11:31:00.902554+00', '2026-11-22 11:31:00.902554+00', '2026-11-22 11:31:00.902554+00');
INSERT INTO noetl.runtime VALUES (4949209026280250018, 'ingest', 'ingest-98e96cd423fd', 'ingest-98e96cd423fd', '', 'ready', 0, 0, '{}', '{}', '2026-11-22 11:31:02.056645+00', '2026-11-22 11:31:00.707785+00', '2026-11-22 11:31:02.056645+00');
INSERT INTO noetl.runtime VALUES (2834272346778974689, 'compute', 'compute-9bd110f8ead6', 'compute-9bd110f8ead6', '', 'ready', 0, 0, '{}', '{}', '2026-11-22 11:31:02.174016+00', '2026-11-22 11:31:00.713875+00', '2026-11-22 11:31:02.174016+00');
INSERT INTO noetl.runtime VALUES (1640610791062844803, 'meta', 'meta-768b88186682', 'meta-768b88186682', '', 'ready', 0, 0, '{}', '{}', '2026-11-22 11:31:02.706703+00', '2026-11-22 11:31:00.691792+00', '2026-11-22 11:31:02.706703+00');
INSERT INTO noetl.shard_cursor VALUES (0, 1, 0, 0, '2026-11-22 11:31:00.73494+00');
INSERT INTO noetl.shard_cursor VALUES (2, 1, 0, 0, '2026-11-22 11:31:00.745891+00');
INSERT INTO noetl.shard_cursor VALUES (1, 1, 1, 0, '2026-11-22 11:31:01.7701+00');
INSERT INTO noetl.shard_cursor VALUES (4, 1, 0, 0, '2026-11-22 11:31:00.762182+00');
INSERT INTO noetl.shard_cursor VALUES (3, 1, 10, 0, '2026-11-22 11:31:03.009617+00');
INSERT INTO noetl.shard_cursor VALUES (6, 1, 0, 0, '2026-11-22 11:31:00.786471+00');
INSERT INTO noetl.shard_cursor VALUES (7, 1, 0, 0, '2026-11-22 11:31:00.794299+00');
INSERT INTO noetl.shard_cursor VALUES (8, 1, 0, 0, '2026-11-22 11:31:00.802164+00');
INSERT INTO noetl.shard_cursor VALUES (9, 1, 0, 0, '2026-11-22 11:31:00.80988+00');
INSERT INTO noetl.shard_cursor VALUES (10, 1, 0, 0, '2026-11-22 11:31:00.813409+00');
INSERT INTO noetl.shard_cursor VALUES (5, 1, 3, 0, '2026-11-22 11:31:01.770214+00');
INSERT INTO noetl.shard_cursor VALUES (11, 1, 0, 0, '2026-11-22 11:31:00.818741+00');
INSERT INTO noetl.shard_cursor VALUES (13, 1, 1, 0, '2026-11-22 11:31:01.789809+00');
INSERT INTO noetl.shard_cursor VALUES (14, 1, 0, 0, '2026-11-22 11:31:00.83836+00');
INSERT INTO noetl.shard_cursor VALUES (12, 1, 2, 0, '2026-11-22 11:31:03.016925+00');
INSERT INTO noetl.shard_cursor VALUES (15, 1, 2, 0, '2026-11-22 11:31:03.029938+00');
INSERT INTO noetl.shard_head VALUES (0, 0);
INSERT INTO noetl.shard_head VALUES (2, 0);
INSERT INTO noetl.shard_head VALUES (4, 0);
INSERT INTO noetl.shard_head VALUES (6, 0);
INSERT INTO noetl.shard_head VALUES (7, 0);
INSERT INTO noetl.shard_head VALUES (8, 0);
INSERT INTO noetl.shard_head VALUES (9, 0);
INSERT INTO noetl.shard_head VALUES (10, 0);
INSERT INTO noetl.shard_head VALUES (11, 0);
INSERT INTO noetl.shard_head VALUES (14, 0);
INSERT INTO noetl.shard_head VALUES (13, 1);
INSERT INTO noetl.shard_head VALUES (1, 1);
INSERT INTO noetl.shard_head VALUES (12, 2);
INSERT INTO noetl.shard_head VALUES (15, 2);
INSERT INTO noetl.shard_head VALUES (5, 3);
INSERT INTO noetl.shard_head VALUES (3, 10);
INSERT INTO noetl.timer VALUES (382855488002979782, 193381167172579528, 15, '2026-11-22 11:31:07.030645+00', 'retry:start:-1', 540431955284525057);
SELECT pg_catalog.setval('noetl.checkpoint_checkpoint_id_seq', 9, true);
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
ALTER TABLE ONLY noetl.compaction_cursor
    ADD CONSTRAINT compaction_cursor_pkey PRIMARY KEY (shard_id);
ALTER TABLE ONLY noetl.compaction
    ADD CONSTRAINT compaction_pkey PRIMARY KEY (low);
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
ALTER TABLE ONLY noetl.kept_result
    ADD CONSTRAINT kept_result_pkey PRIMARY KEY (execution_id, ref_id);
ALTER TABLE ONLY noetl.manifest_part
    ADD CONSTRAINT manifest_part_pkey PRIMARY KEY (execution_id, kind, step, part_no);
ALTER TABLE ONLY noetl.manifest
    ADD CONSTRAINT manifest_pkey PRIMARY KEY (execution_id);
ALTER TABLE ONLY noetl.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (name);
ALTER TABLE ONLY noetl.orphan_payload
    ADD CONSTRAINT orphan_payload_pkey PRIMARY KEY (uri);
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
CREATE INDEX execution_catalog ON noetl.execution USING btree (catalog_id, status, execution_id);
CREATE INDEX execution_child ON noetl.execution USING btree (parent_execution_id, status, execution_id) WHERE (parent_execution_id IS NOT NULL);
CREATE INDEX execution_path_status ON noetl.execution USING btree (path, status, execution_id);
CREATE INDEX execution_status ON noetl.execution USING btree (status, execution_id);
CREATE INDEX execution_uncompacted ON noetl.execution USING btree (shard_id, execution_id) WHERE (compacted_at IS NULL);
CREATE INDEX kept_result_expiry ON noetl.kept_result USING btree (expires_at) WHERE (expires_at IS NOT NULL);
CREATE INDEX kept_result_loop ON noetl.kept_result USING btree (execution_id, loop_epoch, iter_index) WHERE (loop_epoch <> 0);
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
