-- Where the migrations record themselves. Run before them, under their lock.
CREATE TABLE IF NOT EXISTS ferry.schema_versions (
    version    integer     PRIMARY KEY,
    name       text        NOT NULL,
    must_know  integer     NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

COMMENT ON TABLE ferry.schema_versions IS 'The migrations that were applied.';
COMMENT ON COLUMN ferry.schema_versions.version IS 'Number of the migration.';
COMMENT ON COLUMN ferry.schema_versions.name IS 'Its name.';
COMMENT ON COLUMN ferry.schema_versions.must_know IS 'The oldest schema number that a binary must know to run on this one. The largest counts.';
COMMENT ON COLUMN ferry.schema_versions.applied_at IS 'When it was applied.';
