-- The schema of a cluster: the log, its owners, the queue, the read models, the payload index.
-- Lock order everywhere: shard_cursor, command rows by (execution_id, command_id), other rows, shard_head ascending.
CREATE SCHEMA IF NOT EXISTS noetl;

CREATE TABLE noetl.cluster (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    cluster_id text NOT NULL,
    shard_count smallint NOT NULL CHECK (shard_count BETWEEN 1 AND 256),
    partition_width_hours int NOT NULL CHECK (partition_width_hours > 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE noetl.cluster IS 'What is fixed when the database is initialised. Written once, by meta.';

CREATE TABLE noetl.catalog (
    catalog_id bigint PRIMARY KEY,
    path text NOT NULL,
    version int NOT NULL CHECK (version > 0),
    kind text NOT NULL,
    content text NOT NULL,
    digest text NOT NULL,
    meta jsonb NOT NULL DEFAULT '{}',
    archived_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (path, version)
);
COMMENT ON TABLE noetl.catalog IS 'Registered documents, one row a version. Written by ingest.';

CREATE TABLE noetl.credential (
    id bigint PRIMARY KEY,
    name text NOT NULL UNIQUE,
    type text NOT NULL,
    data_encrypted bytea NOT NULL,
    key_wrapped bytea NOT NULL,
    key_id text NOT NULL,
    meta jsonb NOT NULL DEFAULT '{}',
    tags text[] NOT NULL DEFAULT '{}',
    description text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE noetl.credential IS 'Secrets by alias, sealed with AES-256-GCM under a wrapped key. Written by ingest.';

CREATE TABLE noetl.runtime (
    runtime_id bigint PRIMARY KEY,
    kind text NOT NULL,
    name text NOT NULL,
    instance text NOT NULL,
    uri text NOT NULL DEFAULT '',
    status text NOT NULL DEFAULT 'ready',
    capacity int NOT NULL DEFAULT 0,
    active int NOT NULL DEFAULT 0,
    labels jsonb NOT NULL DEFAULT '{}',
    runtime jsonb NOT NULL DEFAULT '{}',
    heartbeat timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (kind, name)
);
CREATE INDEX runtime_heartbeat ON noetl.runtime (kind, heartbeat);
COMMENT ON TABLE noetl.runtime IS
    'Live processes. Each role writes its own row; ingest writes the workers'' rows; meta removes dead ones.';

CREATE TABLE noetl.execution (
    execution_id bigint PRIMARY KEY,
    shard_id smallint NOT NULL,
    catalog_id bigint NOT NULL,
    path text NOT NULL,
    version int NOT NULL,
    parent_execution_id bigint,
    parent_command_id bigint UNIQUE,
    idempotency_key text UNIQUE,
    start_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    status text NOT NULL DEFAULT 'RUNNING' CHECK (status IN ('RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED')),
    current_step text,
    progress jsonb NOT NULL DEFAULT '{}',
    result jsonb,
    error jsonb,
    end_time timestamptz,
    last_event_id bigint NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 70);
CREATE INDEX execution_parent ON noetl.execution (parent_execution_id) WHERE parent_execution_id IS NOT NULL;
CREATE INDEX execution_path ON noetl.execution (path, execution_id);
COMMENT ON TABLE noetl.execution IS
    'One row a run. Columns up to start_time: written once by ingest. From status on: the read model of compute.';

CREATE TABLE noetl.execution_state (
    execution_id bigint PRIMARY KEY,
    shard_id smallint NOT NULL,
    last_event_id bigint NOT NULL,
    state jsonb NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE noetl.execution_state IS
    'The router''s fold, exact up to shard_cursor. Written by the shard''s ingest in the decision transaction.';

CREATE TABLE noetl.event (
    execution_id bigint NOT NULL,
    event_id bigint NOT NULL,
    shard_id smallint NOT NULL,
    event_type text NOT NULL,
    step text,
    command_id bigint,
    attempt int,
    loop_epoch bigint,
    iter_index int,
    status text,
    result jsonb,
    meta jsonb,
    dedup_key text,
    catalog_id bigint NOT NULL,
    parent_execution_id bigint,
    worker_id text,
    event_time timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (execution_id, event_id),
    CONSTRAINT event_result_shape CHECK (
        result IS NULL OR (
            jsonb_typeof(result) = 'object'
            AND coalesce(jsonb_typeof(result -> 'status') = 'string', false)
            AND (result - ARRAY['status', 'reference', 'parent_ref', 'context', 'error']) = '{}'::jsonb
            AND coalesce(jsonb_typeof(result -> 'reference') IN ('object', 'null'), true)
            AND coalesce(jsonb_typeof(result -> 'parent_ref') IN ('object', 'null'), true)
            AND coalesce(jsonb_typeof(result -> 'context') IN ('object', 'null'), true)
            AND coalesce(jsonb_typeof(result -> 'error') IN ('object', 'null'), true)
            AND CASE WHEN jsonb_typeof(result -> 'context') = 'object' THEN NOT
                (result -> 'context') ?| ARRAY['rows', 'columns', 'data', 'payload', 'result', 'response']
                ELSE true END
            AND octet_length(result::text) <= 8192
        )
    ),
    CONSTRAINT event_meta_size CHECK (meta IS NULL OR octet_length(meta::text) <= 1024),
    CONSTRAINT event_guarded CHECK (
        event_type NOT IN ('command.issued', 'command.completed', 'command.failed', 'command.cancelled',
            'loop.done', 'playbook.started', 'playbook.completed', 'playbook.failed', 'playbook.cancelled',
            'child.ended', 'timer.fired')
        OR dedup_key IS NOT NULL
    )
) PARTITION BY RANGE (execution_id);
CREATE UNIQUE INDEX event_dedup ON noetl.event (execution_id, dedup_key) WHERE dedup_key IS NOT NULL;
CREATE INDEX event_shard ON noetl.event (shard_id, event_id);
COMMENT ON TABLE noetl.event IS
    'The log: facts, never updated. Inputs enter through event_log.append; consequences are written by the shard''s ingest.';

CREATE TABLE noetl.shard_head (
    shard_id smallint PRIMARY KEY,
    seq bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
COMMENT ON TABLE noetl.shard_head IS
    'The last number given to an input of a shard; its row lock is what makes numbers gapless. Written by event_log.append.';

CREATE TABLE noetl.shard_cursor (
    shard_id smallint PRIMARY KEY,
    lease_epoch bigint NOT NULL DEFAULT 0,
    seq bigint NOT NULL DEFAULT 0,
    state_digest bigint NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 10);
COMMENT ON TABLE noetl.shard_cursor IS
    'How far a shard is routed: watermark, fence and exactly-once guard. seq by the owning ingest, lease_epoch by meta.';

CREATE SEQUENCE noetl.claim_token;

CREATE TABLE noetl.command (
    execution_id bigint NOT NULL,
    command_id bigint NOT NULL,
    shard_id smallint NOT NULL,
    step text NOT NULL,
    pool text NOT NULL DEFAULT 'default',
    priority smallint NOT NULL DEFAULT 0,
    status text NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'claimed', 'completed', 'failed', 'cancelled')),
    attempt int NOT NULL DEFAULT 0,
    crash_count int NOT NULL DEFAULT 0,
    claim_token bigint,
    cancel_requested boolean NOT NULL DEFAULT false,
    available_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until timestamptz,
    worker_id text,
    loop_epoch bigint NOT NULL DEFAULT 0,
    iter_index int NOT NULL DEFAULT -1,
    item jsonb CHECK (octet_length(item::text) <= 2048),
    context_id bigint NOT NULL,
    issued_event_id bigint NOT NULL,
    PRIMARY KEY (execution_id, command_id)
) PARTITION BY RANGE (execution_id);
CREATE INDEX command_pending ON noetl.command (pool, priority DESC, available_at, issued_event_id)
    WHERE status = 'pending';
CREATE INDEX command_leased ON noetl.command (lease_until) WHERE status = 'claimed';
COMMENT ON TABLE noetl.command IS
    'The queue. Issued, claimed and finished by ingest; expired leases returned by meta.';

CREATE TABLE noetl.command_context (
    execution_id bigint NOT NULL,
    context_id bigint NOT NULL,
    body jsonb NOT NULL,
    PRIMARY KEY (execution_id, context_id)
) PARTITION BY RANGE (execution_id);
COMMENT ON TABLE noetl.command_context IS 'What all items of a loop share, stored once. Written by the shard''s ingest.';

CREATE TABLE noetl.dead_letter (
    execution_id bigint NOT NULL,
    command_id bigint NOT NULL,
    step text NOT NULL,
    reason text NOT NULL,
    detail jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (execution_id, command_id)
);
COMMENT ON TABLE noetl.dead_letter IS 'Commands given up as poison. Written by meta.';

CREATE TABLE noetl.timer (
    execution_id bigint NOT NULL,
    timer_id bigint NOT NULL,
    shard_id smallint NOT NULL,
    due_at timestamptz NOT NULL,
    kind text NOT NULL,
    cause_event_id bigint NOT NULL,
    PRIMARY KEY (execution_id, timer_id)
);
CREATE INDEX timer_due ON noetl.timer (shard_id, due_at);
COMMENT ON TABLE noetl.timer IS 'What a shard must be woken for. Written and fired by the shard''s ingest.';

CREATE TABLE noetl.result_ref (
    execution_id bigint NOT NULL,
    ref_id bigint NOT NULL,
    ref text NOT NULL,
    step text NOT NULL,
    task_label text NOT NULL DEFAULT '',
    shape text NOT NULL DEFAULT 'plain' CHECK (shape IN ('plain', 'pipeline', 'loop')),
    loop_epoch bigint NOT NULL DEFAULT 0,
    iter_index int NOT NULL DEFAULT -1,
    parent_ref_id bigint,
    store_tier text NOT NULL CHECK (store_tier IN ('db', 'disk', 'pvc', 'minio', 's3', 'gcs', 'kv')),
    physical_uri text NOT NULL DEFAULT '',
    content_type text NOT NULL DEFAULT 'application/json',
    bytes bigint NOT NULL,
    sha256 text NOT NULL,
    compression text NOT NULL DEFAULT 'none',
    rows bigint,
    preview jsonb,
    extracted jsonb,
    inline_payload bytea CHECK (octet_length(inline_payload) <= 8192),
    auth_reference text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz,
    PRIMARY KEY (execution_id, ref_id)
) PARTITION BY RANGE (execution_id);
CREATE INDEX result_ref_loop ON noetl.result_ref (execution_id, loop_epoch, iter_index) WHERE loop_epoch <> 0;
COMMENT ON TABLE noetl.result_ref IS
    'Where each payload is; small ones are in the row. Written by ingest when the event that names it is accepted.';

CREATE TABLE noetl.execution_shard (
    role text NOT NULL,
    shard_id smallint NOT NULL,
    owner_instance text,
    epoch bigint NOT NULL DEFAULT 0,
    leased_until timestamptz,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (role, shard_id)
) WITH (fillfactor = 10);
COMMENT ON TABLE noetl.execution_shard IS
    'Who owns a shard in a role, until when. Assigned by meta; leased_until renewed by the owner. Role meta, shard 0 is the leader.';

CREATE TABLE noetl.projection_checkpoint (
    shard_id smallint PRIMARY KEY,
    lease_epoch bigint NOT NULL DEFAULT 0,
    last_projected_event_id bigint NOT NULL DEFAULT 0,
    last_projected_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lag_ms int NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
COMMENT ON TABLE noetl.projection_checkpoint IS
    'How far a shard is projected. last_projected_* and lag_ms by the owning compute, lease_epoch by meta.';

CREATE TABLE noetl.projection_state (
    execution_id bigint PRIMARY KEY,
    last_event_id bigint NOT NULL,
    state jsonb NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE noetl.projection_state IS 'The projection''s own fold, beside the read models. Written by compute.';

CREATE TABLE noetl.checkpoint (
    shard_id smallint NOT NULL,
    checkpoint_id bigint GENERATED ALWAYS AS IDENTITY,
    epoch bigint NOT NULL,
    routed_seq bigint NOT NULL,
    projected_seq bigint NOT NULL,
    head_seq bigint NOT NULL,
    state_digest bigint NOT NULL DEFAULT 0,
    committed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (shard_id, checkpoint_id)
);
COMMENT ON TABLE noetl.checkpoint IS 'One row a shard and tick, only when something advanced. Written by meta.';
