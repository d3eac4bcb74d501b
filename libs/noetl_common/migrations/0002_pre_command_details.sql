-- What an attempt notes down before it does what must not be done twice, for the attempt after it.
ALTER TABLE noetl.command ADD COLUMN details jsonb CHECK (octet_length(details::text) <= 1024);
COMMENT ON TABLE noetl.command IS
    'The queue. Issued, claimed, noted upon and finished by ingest; expired leases returned by meta.';
