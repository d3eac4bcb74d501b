"""The schema as forward-only steps, `NNNN_{pre|post}_<what>.sql`; docs/schema.sql is its dump, compared by a test."""
