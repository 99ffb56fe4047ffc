-- What rate limits over all replicas, reconcile and upgrades from one route file to another need.
--
-- must-know: 1
-- Locks: creates new tables; ACCESS EXCLUSIVE on forwarders, which has a few rows, for a moment.
-- Older binaries: run on it; they do not use what is new, and leave the new column null.

-- One row for each route with a global limit. It is updated up to ten times a second by each forwarder.
CREATE TABLE ferry.rate_leases (
    route     text        PRIMARY KEY,
    next_at   timestamptz NOT NULL,
    leased_at timestamptz,
    granted   integer     NOT NULL DEFAULT 0
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

COMMENT ON TABLE ferry.rate_leases IS 'How far the requests of routes with a global rate limit are given out.';
COMMENT ON COLUMN ferry.rate_leases.route IS 'Name of the route.';
COMMENT ON COLUMN ferry.rate_leases.next_at IS 'When the next request is due that no forwarder has leased yet.';
COMMENT ON COLUMN ferry.rate_leases.leased_at IS 'When a forwarder last asked. Null: nobody has.';
COMMENT ON COLUMN ferry.rate_leases.granted IS 'How many requests it got; they are the last ones before next_at.';

-- deliveries has no index on its status, since one would make every settling write indexes; so reconcile looks at new
-- messages only, and keeps here those that it has to look at again.
CREATE TABLE ferry.unsettled (
    message_id bigint      PRIMARY KEY,
    added_at   timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

COMMENT ON TABLE ferry.unsettled IS 'Messages that were pending when reconcile looked, or were made so by a replay: it looks at them again.';
COMMENT ON COLUMN ferry.unsettled.message_id IS 'ferry.messages.id';
COMMENT ON COLUMN ferry.unsettled.added_at IS 'When it was put here, by reconcile or by the last replay.';

CREATE TABLE ferry.reconcile (
    seen_to          bigint      NOT NULL DEFAULT 0,
    sure_to          bigint      NOT NULL DEFAULT 0,
    mark             bigint      NOT NULL DEFAULT 0,
    marked_at        timestamptz NOT NULL DEFAULT now(),
    checked          bigint      NOT NULL DEFAULT 0,
    failures_checked bigint      NOT NULL DEFAULT 0,
    singleton        boolean     NOT NULL DEFAULT true PRIMARY KEY CHECK (singleton)
);
INSERT INTO ferry.reconcile DEFAULT VALUES;

COMMENT ON TABLE ferry.reconcile IS 'One row: how far reconcile has come.';
COMMENT ON COLUMN ferry.reconcile.seen_to IS 'Messages up to this id were looked at once; those then pending are in unsettled.';
COMMENT ON COLUMN ferry.reconcile.sure_to IS 'Messages up to this id were looked at again, after every transaction that could have stored one had ended.';
COMMENT ON COLUMN ferry.reconcile.mark IS 'What seen_to was at marked_at: how far the second look goes.';
COMMENT ON COLUMN ferry.reconcile.marked_at IS 'When the mark was set.';
COMMENT ON COLUMN ferry.reconcile.checked IS 'The message in unsettled at which the last run ended; the next one goes on behind it.';
COMMENT ON COLUMN ferry.reconcile.failures_checked IS 'The same in failures.';
COMMENT ON COLUMN ferry.reconcile.singleton IS 'Keeps it at one row.';

ALTER TABLE ferry.forwarders ADD COLUMN rescue_after_ms bigint;

COMMENT ON COLUMN ferry.forwarders.rescue_after_ms IS 'Milliseconds after which one of its running jobs may be taken to be lost, by its route file. Null: a version that does not say.';
