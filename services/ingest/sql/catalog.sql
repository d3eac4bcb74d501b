-- name: insert_catalog_entry
-- Register a document as the next version of its path, unless the newest version is the same.
WITH newest AS (
    SELECT catalog_id, version, digest, archived_at FROM noetl.catalog WHERE path = %(path)s
    ORDER BY version DESC LIMIT 1
)
INSERT INTO noetl.catalog (catalog_id, path, version, kind, content, digest, meta)
SELECT %(catalog_id)s, %(path)s, coalesce((SELECT version FROM newest), 0) + 1, %(kind)s, %(content)s, %(digest)s,
    %(meta)s::jsonb
WHERE NOT EXISTS (SELECT FROM newest WHERE digest = %(digest)s AND archived_at IS NULL)
RETURNING catalog_id, version

-- name: read_newest_entry
-- The newest live version of a path.
SELECT catalog_id, path, version, kind, content, digest, meta, created_at FROM noetl.catalog
WHERE path = %(path)s AND archived_at IS NULL
ORDER BY version DESC LIMIT 1

-- name: read_entry
-- One version of a path.
SELECT catalog_id, path, version, kind, content, digest, meta, created_at FROM noetl.catalog
WHERE path = %(path)s AND version = %(version)s AND archived_at IS NULL

-- name: read_entry_by_id
-- One document by its id.
SELECT catalog_id, path, version, kind, content, digest, meta, created_at FROM noetl.catalog
WHERE catalog_id = %(catalog_id)s

-- name: list_entries
-- Registered documents, newest version first within a path, without their content.
SELECT catalog_id, path, version, kind, meta, created_at FROM noetl.catalog
WHERE archived_at IS NULL
    AND (%(kind)s::text IS NULL OR lower(kind) = lower(%(kind)s::text))
    AND (%(path)s::text IS NULL OR path = %(path)s::text)
ORDER BY path, version DESC
LIMIT %(limit)s OFFSET %(offset)s
