-- name: upsert_credential
-- Store a sealed secret under its name.
INSERT INTO noetl.credential (id, name, type, data_encrypted, key_wrapped, key_id, meta, tags, description)
VALUES (%(id)s, %(name)s, %(type)s, %(data_encrypted)s, %(key_wrapped)s, %(key_id)s, %(meta)s::jsonb,
    %(tags)s::text[], %(description)s)
ON CONFLICT (name) DO UPDATE SET type = excluded.type, data_encrypted = excluded.data_encrypted,
    key_wrapped = excluded.key_wrapped, key_id = excluded.key_id, meta = excluded.meta, tags = excluded.tags,
    description = excluded.description, updated_at = clock_timestamp()
RETURNING id, name, type, meta, tags, description, created_at, updated_at

-- name: list_credentials
-- Secrets by name, without their data.
SELECT id, name, type, meta, tags, description, created_at, updated_at FROM noetl.credential
WHERE (%(type)s::text IS NULL OR type = %(type)s::text)
    AND (%(q)s::text IS NULL OR strpos(lower(name || ' ' || description), lower(%(q)s::text)) > 0)
ORDER BY name
LIMIT %(limit)s

-- name: read_credential
-- One sealed secret, by its name or id.
SELECT id, name, type, data_encrypted, key_wrapped, key_id, meta, tags, description, created_at, updated_at
FROM noetl.credential
WHERE name = %(name)s OR id::text = %(name)s
ORDER BY name = %(name)s DESC LIMIT 1

-- name: delete_credential
-- Forget a secret, by its name or id.
DELETE FROM noetl.credential
WHERE id = (SELECT id FROM noetl.credential WHERE name = %(name)s OR id::text = %(name)s
    ORDER BY name = %(name)s DESC LIMIT 1)
RETURNING id, name
