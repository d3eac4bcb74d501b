-- Lists of runs read a page and no more, whatever they are filtered by: equal columns first, then the newest.
CREATE INDEX execution_status ON noetl.execution (status, execution_id);
CREATE INDEX execution_catalog ON noetl.execution (catalog_id, status, execution_id);
CREATE INDEX execution_path_status ON noetl.execution (path, status, execution_id);
DROP INDEX noetl.execution_path;
CREATE INDEX execution_child ON noetl.execution (parent_execution_id, status, execution_id)
    WHERE parent_execution_id IS NOT NULL;
DROP INDEX noetl.execution_parent;
