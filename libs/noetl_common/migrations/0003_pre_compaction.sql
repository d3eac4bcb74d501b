-- An end for old data: manifests stand for finished executions once their part of the log is dropped.
ALTER TABLE noetl.execution ADD COLUMN compacted_at timestamptz;
CREATE INDEX execution_uncompacted ON noetl.execution (shard_id, execution_id) WHERE compacted_at IS NULL;
COMMENT ON TABLE noetl.execution IS
    'One row a run. Columns up to start_time: written once by ingest. compacted_at: by compactor, with the manifest.
From status on: the read model of compute.';

ALTER TABLE noetl.result_ref ADD COLUMN scope text NOT NULL DEFAULT 'execution'
    CHECK (scope IN ('step', 'execution', 'workflow', 'permanent'));

CREATE TABLE noetl.manifest (
    execution_id bigint PRIMARY KEY,
    shard_id smallint NOT NULL,
    catalog_id bigint NOT NULL,
    path text NOT NULL,
    version int NOT NULL,
    parent_execution_id bigint,
    status text NOT NULL,
    terminal_event_id bigint,
    terminal_ref jsonb,
    chain_depth int NOT NULL,
    events bigint NOT NULL,
    commands bigint NOT NULL,
    results bigint NOT NULL,
    counts jsonb NOT NULL,
    last_event_id bigint NOT NULL,
    first_event_time timestamptz,
    last_event_time timestamptz,
    trace_digest text NOT NULL,
    workload jsonb,
    parts int NOT NULL,
    compacted_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE noetl.manifest IS
    'What is kept of a finished execution; where its row is, the log is not asked any more. Written by compactor.';

CREATE TABLE noetl.manifest_part (
    execution_id bigint NOT NULL,
    kind text NOT NULL CHECK (kind IN ('events', 'trace', 'links')),
    step text NOT NULL DEFAULT '',
    part_no int NOT NULL,
    first bigint NOT NULL,
    count int NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (execution_id, kind, step, part_no)
);
COMMENT ON TABLE noetl.manifest_part IS
    'A manifest''s history and lineage, up to 500 rows a part, each row a JSON array. Written by compactor.';
DO $$
BEGIN
    ALTER TABLE noetl.manifest_part ALTER COLUMN body SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    RAISE NOTICE 'this server has no lz4: manifests are compressed with pglz';
END $$;

CREATE TABLE noetl.kept_result (LIKE noetl.result_ref INCLUDING DEFAULTS INCLUDING CONSTRAINTS);
ALTER TABLE noetl.kept_result ADD PRIMARY KEY (execution_id, ref_id);
CREATE INDEX kept_result_loop ON noetl.kept_result (execution_id, loop_epoch, iter_index) WHERE loop_epoch <> 0;
CREATE INDEX kept_result_expiry ON noetl.kept_result (expires_at) WHERE expires_at IS NOT NULL;
COMMENT ON TABLE noetl.kept_result IS
    'Results that outlive their execution''s part of the log. Written by compactor, by ingest when they are deleted.';

CREATE TABLE noetl.compaction_cursor (
    shard_id smallint PRIMARY KEY,
    lease_epoch bigint NOT NULL DEFAULT 0,
    folded_at timestamptz
) WITH (fillfactor = 10);
INSERT INTO noetl.compaction_cursor (shard_id)
SELECT shard_id FROM noetl.projection_checkpoint;
COMMENT ON TABLE noetl.compaction_cursor IS
    'The fence of a shard''s compactor, and of shard 0''s for partitions. folded_at by the owner, lease_epoch by meta.';

CREATE TABLE noetl.compaction (
    low bigint PRIMARY KEY,
    high bigint NOT NULL,
    suffix text NOT NULL,
    state text NOT NULL DEFAULT 'folded'
        CHECK (state IN ('folded', 'sealed', 'detaching', 'detached', 'verified', 'dropped')),
    fence_xid xid8,
    heads jsonb,
    executions bigint NOT NULL DEFAULT 0,
    repaired bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE noetl.compaction IS
    'How far a range of the log is on its way out; one that is not here is in use. Written by compactor, shard 0.';

CREATE TABLE noetl.orphan_payload (
    uri text PRIMARY KEY,
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE noetl.orphan_payload IS
    'Payloads that no row named when they were looked at; one that no row names later either is deleted. By compactor.';
