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
-- One document by its id, archived or not: runs name their version by it.
SELECT catalog_id, path, version, kind, content, digest, meta, archived_at, created_at FROM noetl.catalog
WHERE catalog_id = %(catalog_id)s

-- name: list_entries
-- Registered documents, newest version first within a path, without their content.
SELECT catalog_id, path, version, kind, meta, archived_at, created_at FROM noetl.catalog
WHERE (%(archived)s::bool OR archived_at IS NULL)
    AND (%(kind)s::text IS NULL OR lower(kind) = lower(%(kind)s::text))
    AND (%(path)s::text IS NULL OR path = %(path)s::text)
ORDER BY path, version DESC
LIMIT %(limit)s OFFSET %(offset)s

-- name: archive_entries
-- Take a version of a path, or all of them, out of use.
UPDATE noetl.catalog SET archived_at = clock_timestamp()
WHERE path = %(path)s AND (%(version)s::int IS NULL OR version = %(version)s::int) AND archived_at IS NULL
RETURNING version

-- name: restore_entries
-- Bring a version of a path, or all of them, back into use.
UPDATE noetl.catalog SET archived_at = NULL
WHERE path = %(path)s AND (%(version)s::int IS NULL OR version = %(version)s::int) AND archived_at IS NOT NULL
RETURNING version

-- name: list_versions
-- The versions of a path, archived or not.
SELECT version FROM noetl.catalog
WHERE path = %(path)s AND (%(version)s::int IS NULL OR version = %(version)s::int)
ORDER BY version
