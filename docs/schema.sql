-- The schema after the last migration. Made by `make schema`; a test compares it with a fresh database.

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
    turn_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT command_details_check CHECK ((octet_length((details)::text) <= 1024)),
    CONSTRAINT command_item_check CHECK ((octet_length((item)::text) <= 2048)),
    CONSTRAINT command_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'claimed'::text, 'completed'::text, 'failed'::text, 'cancelled'::text])))
)
PARTITION BY RANGE (execution_id);

COMMENT ON TABLE noetl.command IS 'The queue. Issued, claimed, noted upon and finished by ingest; expired leases returned by meta.';

CREATE TABLE noetl.command_context (
    execution_id bigint NOT NULL,
    context_id bigint NOT NULL,
    body jsonb NOT NULL
)
PARTITION BY RANGE (execution_id);

COMMENT ON TABLE noetl.command_context IS 'What all items of a loop share, stored once. Written by the shard''s ingest.';

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

CREATE TABLE noetl.concurrency (
    execution_id bigint NOT NULL,
    group_id bigint NOT NULL,
    key text NOT NULL,
    run_limit integer NOT NULL,
    ticket bigint NOT NULL,
    is_admitted boolean DEFAULT false NOT NULL,
    joined_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    admitted_at timestamp with time zone,
    CONSTRAINT concurrency_run_limit_check CHECK ((run_limit > 0))
)
WITH (fillfactor='70');

COMMENT ON TABLE noetl.concurrency IS 'Runs of concurrency groups until their end, in the order of their tickets. Written by ingest: joined with the start,
admitted and left in decision transactions under the group''s advisory lock.';

ALTER TABLE noetl.concurrency ALTER COLUMN ticket ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME noetl.concurrency_ticket_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
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
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    assigned_at timestamp with time zone
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
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    holds_lock boolean DEFAULT false NOT NULL
);

COMMENT ON TABLE noetl.runtime IS 'Live processes. Each role writes its own row; ingest writes the workers'' rows, and status (ready, cordoned, draining)
of every role''s when an operator asks; meta removes dead ones.';

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

ALTER TABLE ONLY noetl.catalog
    ADD CONSTRAINT catalog_path_version_key UNIQUE (path, version);

ALTER TABLE ONLY noetl.catalog
    ADD CONSTRAINT catalog_pkey PRIMARY KEY (catalog_id);

ALTER TABLE ONLY noetl.checkpoint
    ADD CONSTRAINT checkpoint_pkey PRIMARY KEY (shard_id, checkpoint_id);

ALTER TABLE ONLY noetl.cluster
    ADD CONSTRAINT cluster_pkey PRIMARY KEY (only_row);

ALTER TABLE ONLY noetl.command_context
    ADD CONSTRAINT command_context_pkey PRIMARY KEY (execution_id, context_id);

ALTER TABLE ONLY noetl.command
    ADD CONSTRAINT command_pkey PRIMARY KEY (execution_id, command_id);

ALTER TABLE ONLY noetl.compaction_cursor
    ADD CONSTRAINT compaction_cursor_pkey PRIMARY KEY (shard_id);

ALTER TABLE ONLY noetl.compaction
    ADD CONSTRAINT compaction_pkey PRIMARY KEY (low);

ALTER TABLE ONLY noetl.concurrency
    ADD CONSTRAINT concurrency_pkey PRIMARY KEY (execution_id);

ALTER TABLE ONLY noetl.credential
    ADD CONSTRAINT credential_name_key UNIQUE (name);

ALTER TABLE ONLY noetl.credential
    ADD CONSTRAINT credential_pkey PRIMARY KEY (id);

ALTER TABLE ONLY noetl.dead_letter
    ADD CONSTRAINT dead_letter_pkey PRIMARY KEY (execution_id, command_id);

ALTER TABLE ONLY noetl.event
    ADD CONSTRAINT event_pkey PRIMARY KEY (execution_id, event_id);

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

CREATE INDEX command_turn ON ONLY noetl.command USING btree (pool, priority DESC, turn_at, available_at) WHERE (status = 'pending'::text);

CREATE INDEX concurrency_admitted ON noetl.concurrency USING btree (group_id) WHERE is_admitted;

CREATE INDEX concurrency_waiting ON noetl.concurrency USING btree (group_id, ticket) WHERE (NOT is_admitted);

CREATE UNIQUE INDEX event_dedup ON ONLY noetl.event USING btree (execution_id, dedup_key) WHERE (dedup_key IS NOT NULL);

CREATE INDEX event_shard ON ONLY noetl.event USING btree (shard_id, event_id);

CREATE INDEX execution_catalog ON noetl.execution USING btree (catalog_id, status, execution_id);

CREATE INDEX execution_child ON noetl.execution USING btree (parent_execution_id, status, execution_id) WHERE (parent_execution_id IS NOT NULL);

CREATE INDEX execution_path_status ON noetl.execution USING btree (path, status, execution_id);

CREATE INDEX execution_status ON noetl.execution USING btree (status, execution_id);

CREATE INDEX execution_uncompacted ON noetl.execution USING btree (shard_id, execution_id) WHERE (compacted_at IS NULL);

CREATE INDEX kept_result_expiry ON noetl.kept_result USING btree (expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX kept_result_loop ON noetl.kept_result USING btree (execution_id, loop_epoch, iter_index) WHERE (loop_epoch <> 0);

CREATE INDEX result_ref_loop ON ONLY noetl.result_ref USING btree (execution_id, loop_epoch, iter_index) WHERE (loop_epoch <> 0);

CREATE INDEX runtime_heartbeat ON noetl.runtime USING btree (kind, heartbeat);

CREATE INDEX timer_due ON noetl.timer USING btree (shard_id, due_at);
