-- What audit, list, replay, retention and reading again need.
--
-- must-know: 1
-- Locks: ACCESS EXCLUSIVE on messages while two of its indexes are built, which reads the whole table: on a large one,
-- stop the binaries meanwhile, or let them wait. ACCESS EXCLUSIVE on deliveries and failures for a moment.
-- Older binaries: run on it. A forwarder sends replays made with a new key under the old one, and counts what was purged.

-- Keys are found by their beginning, which an index in another collation does not help with.
DROP VIEW ferry.message_status;
ALTER TABLE ferry.messages ALTER COLUMN message_key TYPE text COLLATE "C";
CREATE VIEW ferry.message_status AS
SELECT
    m.id AS message_id,
    m.route,
    m.message_key,
    m.lane,
    m.topic,
    m.partition,
    m."offset",
    m.produced_at,
    m.received_at,
    d.status,
    d.reason,
    d.detail,
    d.attempts,
    d.http_status,
    d.error_code,
    d.error,
    d.next_attempt_at,
    d.settled_at
FROM ferry.messages AS m
JOIN ferry.deliveries AS d ON d.message_id = m.id;

COMMENT ON VIEW ferry.message_status IS 'What became of each message, for people.';

-- Counted whole by audit, without a look at the table; else to find a record by where it came from.
CREATE INDEX messages_position_idx ON ferry.messages (route, topic_id, partition, "offset") INCLUDE (id);

ALTER TABLE ferry.deliveries ADD COLUMN key_revision integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN ferry.deliveries.key_revision IS 'How many replays asked for a new Idempotency-Key, which then ends in #r<n>.';

DROP INDEX ferry.failures_reason_failed_at_idx;
DROP INDEX ferry.failures_failed_at_idx;
CREATE INDEX failures_route_message_id_idx ON ferry.failures (route, message_id);
CREATE INDEX failures_reason_message_id_idx ON ferry.failures (reason, message_id);

CREATE TABLE ferry.purged (
    route     text    NOT NULL,
    topic     text    NOT NULL,
    topic_id  uuid    NOT NULL,
    partition integer NOT NULL,
    delivered bigint  NOT NULL DEFAULT 0,
    failed    bigint  NOT NULL DEFAULT 0,
    PRIMARY KEY (route, topic, topic_id, partition)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

COMMENT ON TABLE ferry.purged IS 'Sums of the messages that were deleted after their retention: stored = the rows there are + these.';
COMMENT ON COLUMN ferry.purged.route IS 'As in ledger.';
COMMENT ON COLUMN ferry.purged.topic IS 'As in ledger.';
COMMENT ON COLUMN ferry.purged.topic_id IS 'As in ledger.';
COMMENT ON COLUMN ferry.purged.partition IS 'As in ledger.';
COMMENT ON COLUMN ferry.purged.delivered IS 'Messages that were delivered.';
COMMENT ON COLUMN ferry.purged.failed IS 'Messages that had failed.';

CREATE TABLE ferry.retention (
    keep_seconds bigint      PRIMARY KEY,
    swept_to     bigint      NOT NULL DEFAULT 0,
    swept_at     timestamptz NOT NULL DEFAULT now()
);

COMMENT ON TABLE ferry.retention IS 'How far the purge of delivered messages has come: a row for each retention that a route has.';
COMMENT ON COLUMN ferry.retention.keep_seconds IS 'retention.delivered of the routes that the row is about.';
COMMENT ON COLUMN ferry.retention.swept_to IS 'Messages up to this id were looked at since swept_at.';
COMMENT ON COLUMN ferry.retention.swept_at IS 'When the purge last began with the oldest message.';

CREATE TABLE ferry.replays (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    filter      text        NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    up_to       bigint      NOT NULL,
    done_to     bigint      NOT NULL DEFAULT 0,
    replayed    bigint      NOT NULL DEFAULT 0
);

COMMENT ON TABLE ferry.replays IS 'The replays by filter, so that one that was interrupted goes on where it stopped.';
COMMENT ON COLUMN ferry.replays.id IS 'Number of the replay.';
COMMENT ON COLUMN ferry.replays.filter IS 'What was asked for, as the command line says it.';
COMMENT ON COLUMN ferry.replays.started_at IS 'When it was asked for. What was settled later is not part of it.';
COMMENT ON COLUMN ferry.replays.updated_at IS 'When it last went on.';
COMMENT ON COLUMN ferry.replays.finished_at IS 'When it was through. Null: it was interrupted, or is at work.';
COMMENT ON COLUMN ferry.replays.up_to IS 'The last message that there was at started_at.';
COMMENT ON COLUMN ferry.replays.done_to IS 'Messages up to this id are done.';
COMMENT ON COLUMN ferry.replays.replayed IS 'Messages that it made pending.';
