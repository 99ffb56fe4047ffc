-- An id of the installation, which the ingester writes beside the offsets it commits.
--
-- must-know: 1
-- Locks: creates a new table only.
-- Older binaries: run on it; they do not read it.

CREATE TABLE ferry.installation (
    id        uuid    NOT NULL DEFAULT gen_random_uuid(),
    singleton boolean NOT NULL DEFAULT true PRIMARY KEY CHECK (singleton)
);
INSERT INTO ferry.installation DEFAULT VALUES;

COMMENT ON TABLE ferry.installation IS 'One row, written by the migration that makes it. A copy or a restored database keeps its id.';
COMMENT ON COLUMN ferry.installation.id IS 'Tells this database from others; part of the metadata of committed offsets.';
COMMENT ON COLUMN ferry.installation.singleton IS 'Keeps it at one row.';
