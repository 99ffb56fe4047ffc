-- What Ferry stores: messages, the state of their delivery, what was sent, where the groups stand, the sums.
--
-- must-know: 1
-- Locks: creates new tables only, and sets vacuum parameters of river_job (SHARE UPDATE EXCLUSIVE, which reads and
-- writes do not wait for).
-- Older binaries: there are none before this one.

CREATE TABLE ferry.messages (
    id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    received_at    timestamptz NOT NULL DEFAULT now(),
    produced_at    timestamptz,
    "offset"       bigint      NOT NULL,
    partition      integer     NOT NULL,
    topic_id       uuid        NOT NULL,
    topic          text        NOT NULL,
    route          text        NOT NULL,
    message_key    text        NOT NULL,
    lane           text,
    payload_sha256 bytea,
    kafka_key      bytea,
    headers        jsonb,
    payload        bytea,
    CONSTRAINT messages_route_message_key_key UNIQUE (route, message_key)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02);

COMMENT ON TABLE ferry.messages IS 'One row for each record and route, written once and never updated. State: ferry.deliveries; for people: ferry.message_status.';
COMMENT ON COLUMN ferry.messages.id IS 'Message id, ever-increasing.';
COMMENT ON COLUMN ferry.messages.received_at IS 'When it was stored.';
COMMENT ON COLUMN ferry.messages.produced_at IS 'Timestamp of the Kafka record; null when it has none, or one outside the years 1 to 9999.';
COMMENT ON COLUMN ferry.messages."offset" IS 'Kafka offset.';
COMMENT ON COLUMN ferry.messages.partition IS 'Kafka partition.';
COMMENT ON COLUMN ferry.messages.topic_id IS 'Kafka''s UUID of the topic; zero for a broker that has none.';
COMMENT ON COLUMN ferry.messages.topic IS 'Kafka topic.';
COMMENT ON COLUMN ferry.messages.route IS 'Name of the route in the route file.';
COMMENT ON COLUMN ferry.messages.message_key IS 'Identity within the route: the value of message_key, or <topic-id>/<partition>/<offset>; sha256:<hex> when it is over 512 bytes; <key>#<position> for a conflict.';
COMMENT ON COLUMN ferry.messages.lane IS 'What the message is ordered by; null: unordered.';
COMMENT ON COLUMN ferry.messages.payload_sha256 IS 'SHA-256 of the record''s value; null for a null value. Kept when the payload itself could not be stored.';
COMMENT ON COLUMN ferry.messages.kafka_key IS 'Key of the record, as it came.';
COMMENT ON COLUMN ferry.messages.headers IS 'Headers of the record in their order: [{"name": …, "value": …}], value null for a null one; name_base64, value_base64 instead for what is no text. Null: no headers.';
COMMENT ON COLUMN ferry.messages.payload IS 'Value of the record, as it came. Text: convert_from(payload, ''UTF8'').';

-- No foreign key to messages: both rows are inserted by one transaction and deleted by one, and its check would cost a
-- lookup for each row. No index but the primary key, and each page filled to 40 % only, so that an update stays in
-- its page and writes no index (HOT), also when one transaction settles all rows of a page: with 50 % some moved. A
-- column that settling changes must never be indexed here.
CREATE TABLE ferry.deliveries (
    message_id       bigint      PRIMARY KEY,
    job_id           bigint,
    due_from         timestamptz NOT NULL DEFAULT now(),
    next_attempt_at  timestamptz,
    settled_at       timestamptz,
    dead_lettered_at timestamptz,
    attempts         integer     NOT NULL DEFAULT 0,
    requests         integer     NOT NULL DEFAULT 0,
    http_status      integer,
    status           text        NOT NULL DEFAULT 'pending',
    route            text        NOT NULL,
    reason           text,
    detail           text,
    error_code       text,
    error            text,
    CONSTRAINT deliveries_status_check CHECK (status IN ('pending', 'delivered', 'failed')),
    CONSTRAINT deliveries_reason_check CHECK ((status = 'failed') = (reason IS NOT NULL)),
    CONSTRAINT deliveries_settled_check CHECK ((status = 'pending') = (settled_at IS NULL))
) WITH (
    fillfactor = 40,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 1,
    autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.02
);

COMMENT ON TABLE ferry.deliveries IS 'State of each message''s delivery. Narrow, because it is updated; for people: ferry.message_status.';
COMMENT ON COLUMN ferry.deliveries.message_id IS 'ferry.messages.id';
COMMENT ON COLUMN ferry.deliveries.job_id IS 'The one job (ferry.river_job.id) that owns the message: only it may send and settle it. Null: none.';
COMMENT ON COLUMN ferry.deliveries.due_from IS 'max_age counts from here: when it was stored, or replayed last.';
COMMENT ON COLUMN ferry.deliveries.next_attempt_at IS 'Pending: when it is tried next; null: as soon as there is a slot.';
COMMENT ON COLUMN ferry.deliveries.settled_at IS 'When it became delivered or failed.';
COMMENT ON COLUMN ferry.deliveries.dead_lettered_at IS 'When Kafka had its dead letter.';
COMMENT ON COLUMN ferry.deliveries.attempts IS 'Attempts that count against max_attempts.';
COMMENT ON COLUMN ferry.deliveries.requests IS 'All requests, held ones too.';
COMMENT ON COLUMN ferry.deliveries.http_status IS 'Status of the last response; null: there was none.';
COMMENT ON COLUMN ferry.deliveries.status IS 'pending, delivered or failed';
COMMENT ON COLUMN ferry.deliveries.route IS 'Name of the route, as in messages.';
COMMENT ON COLUMN ferry.deliveries.reason IS 'Why it failed: rejected, exhausted, expired, undecodable, unmappable, unstorable, conflict, crashed, cancelled.';
COMMENT ON COLUMN ferry.deliveries.detail IS 'More about the reason, or the reason that a response rule gives.';
COMMENT ON COLUMN ferry.deliveries.error_code IS 'The destination''s own code, as the route''s error_code reads it.';
COMMENT ON COLUMN ferry.deliveries.error IS 'What went wrong at the last attempt.';

CREATE TABLE ferry.failures (
    message_id  bigint      PRIMARY KEY,
    failed_at   timestamptz NOT NULL DEFAULT now(),
    http_status integer,
    route       text        NOT NULL,
    reason      text        NOT NULL,
    error_code  text
);
CREATE INDEX failures_route_failed_at_idx ON ferry.failures (route, failed_at);
CREATE INDEX failures_reason_failed_at_idx ON ferry.failures (reason, failed_at);
CREATE INDEX failures_failed_at_idx ON ferry.failures (failed_at);

COMMENT ON TABLE ferry.failures IS 'One row for each failed message, to find them by; deleted when it is replayed.';
COMMENT ON COLUMN ferry.failures.message_id IS 'ferry.messages.id';
COMMENT ON COLUMN ferry.failures.failed_at IS 'When it failed.';
COMMENT ON COLUMN ferry.failures.http_status IS 'As in deliveries.';
COMMENT ON COLUMN ferry.failures.route IS 'As in deliveries.';
COMMENT ON COLUMN ferry.failures.reason IS 'As in deliveries.';
COMMENT ON COLUMN ferry.failures.error_code IS 'As in deliveries.';

CREATE TABLE ferry.attempts (
    message_id      bigint      NOT NULL,
    started_at      timestamptz NOT NULL,
    next_attempt_at timestamptz,
    attempt         integer     NOT NULL,
    duration_ms     integer     NOT NULL,
    http_status     integer,
    counted         boolean     NOT NULL,
    verdict         text        NOT NULL,
    error_code      text,
    error           text,
    response        text,
    forwarder       text        NOT NULL
) PARTITION BY RANGE (started_at);
CREATE INDEX attempts_message_id_idx ON ferry.attempts (message_id);
CREATE TABLE ferry.attempts_default PARTITION OF ferry.attempts DEFAULT;

COMMENT ON TABLE ferry.attempts IS 'Every request that was sent. One partition for each day (UTC), made ahead; attempts_default takes what fits none.';
COMMENT ON COLUMN ferry.attempts.message_id IS 'ferry.messages.id';
COMMENT ON COLUMN ferry.attempts.started_at IS 'When the request began.';
COMMENT ON COLUMN ferry.attempts.next_attempt_at IS 'When the message is tried next, as this attempt left it; null: never.';
COMMENT ON COLUMN ferry.attempts.attempt IS 'Number of the request over the life of the message, from 1.';
COMMENT ON COLUMN ferry.attempts.duration_ms IS 'Milliseconds to the end of the response.';
COMMENT ON COLUMN ferry.attempts.http_status IS 'Null: there was no response.';
COMMENT ON COLUMN ferry.attempts.counted IS 'Whether it counts against max_attempts.';
COMMENT ON COLUMN ferry.attempts.verdict IS 'delivered, retry, hold or reject';
COMMENT ON COLUMN ferry.attempts.error_code IS 'The destination''s own code, as the route''s error_code reads it.';
COMMENT ON COLUMN ferry.attempts.error IS 'What went wrong.';
COMMENT ON COLUMN ferry.attempts.response IS 'First 1 KiB of the response.';
COMMENT ON COLUMN ferry.attempts.forwarder IS 'Id of the forwarder that sent it.';

-- The sums of settled messages for the gauges. Sixteen slots, so that the forwarders rarely wait for each other's row.
CREATE TABLE ferry.tallies (
    slot      smallint NOT NULL,
    route     text     NOT NULL,
    delivered bigint   NOT NULL DEFAULT 0,
    failed    bigint   NOT NULL DEFAULT 0,
    PRIMARY KEY (slot, route)
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

COMMENT ON TABLE ferry.tallies IS 'Sums of settled messages; add up the slots of a route.';
COMMENT ON COLUMN ferry.tallies.slot IS 'Hash of the forwarder, modulo 16.';
COMMENT ON COLUMN ferry.tallies.route IS 'Name of the route.';
COMMENT ON COLUMN ferry.tallies.delivered IS 'Messages that became delivered.';
COMMENT ON COLUMN ferry.tallies.failed IS 'Messages that became failed after they were stored as pending.';

CREATE TABLE ferry.positions (
    "group"        text        NOT NULL,
    topic          text        NOT NULL,
    partition      integer     NOT NULL,
    topic_id       uuid        NOT NULL,
    next_offset    bigint      NOT NULL,
    expired_unread bigint      NOT NULL DEFAULT 0,
    skipped        bigint      NOT NULL DEFAULT 0,
    updated_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY ("group", topic, partition)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

COMMENT ON TABLE ferry.positions IS 'Where each consumer group stands in each partition: the truth, before Kafka''s committed offset.';
COMMENT ON COLUMN ferry.positions."group" IS 'Kafka consumer group.';
COMMENT ON COLUMN ferry.positions.topic IS 'Kafka topic.';
COMMENT ON COLUMN ferry.positions.partition IS 'Kafka partition.';
COMMENT ON COLUMN ferry.positions.topic_id IS 'Kafka''s UUID of the topic that next_offset counts in.';
COMMENT ON COLUMN ferry.positions.next_offset IS 'The next offset to read.';
COMMENT ON COLUMN ferry.positions.expired_unread IS 'Offsets that Kafka removed before they were read.';
COMMENT ON COLUMN ferry.positions.skipped IS 'Offsets that an operator skipped.';
COMMENT ON COLUMN ferry.positions.updated_at IS 'When the row was written last.';

CREATE TABLE ferry.ledger (
    route              text    NOT NULL,
    topic              text    NOT NULL,
    topic_id           uuid    NOT NULL,
    partition          integer NOT NULL,
    consumed           bigint  NOT NULL DEFAULT 0,
    stored             bigint  NOT NULL DEFAULT 0,
    duplicates         bigint  NOT NULL DEFAULT 0,
    conflicts          bigint  NOT NULL DEFAULT 0,
    unstorable         bigint  NOT NULL DEFAULT 0,
    filtered           bigint  NOT NULL DEFAULT 0,
    skipped_tombstones bigint  NOT NULL DEFAULT 0,
    PRIMARY KEY (route, topic, topic_id, partition),
    CONSTRAINT ledger_sum_check CHECK (consumed = stored + duplicates + filtered + skipped_tombstones)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

COMMENT ON TABLE ferry.ledger IS 'What became of the records that were read: consumed = stored + duplicates + filtered + skipped_tombstones.';
COMMENT ON COLUMN ferry.ledger.route IS 'Name of the route.';
COMMENT ON COLUMN ferry.ledger.topic IS 'Kafka topic.';
COMMENT ON COLUMN ferry.ledger.topic_id IS 'Kafka''s UUID of the topic.';
COMMENT ON COLUMN ferry.ledger.partition IS 'Kafka partition.';
COMMENT ON COLUMN ferry.ledger.consumed IS 'Records read for this route, each reading counted.';
COMMENT ON COLUMN ferry.ledger.stored IS 'Messages stored, conflicts and unstorable ones included.';
COMMENT ON COLUMN ferry.ledger.duplicates IS 'Records whose message was stored already.';
COMMENT ON COLUMN ferry.ledger.conflicts IS 'Records with the key of another message and a different payload, stored as failed.';
COMMENT ON COLUMN ferry.ledger.unstorable IS 'Records that the database refused, stored as failed.';
COMMENT ON COLUMN ferry.ledger.filtered IS 'Records that the route''s filter left out.';
COMMENT ON COLUMN ferry.ledger.skipped_tombstones IS 'Records with a null value that the route skips.';

CREATE TABLE ferry.forwarders (
    id      text        PRIMARY KEY,
    version text        NOT NULL,
    routes  text[]      NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

COMMENT ON TABLE ferry.forwarders IS 'The forwarders that run or ran, each of which writes its row every 10 seconds.';
COMMENT ON COLUMN ferry.forwarders.id IS 'The forwarder, as in attempts.forwarder.';
COMMENT ON COLUMN ferry.forwarders.version IS 'Its version.';
COMMENT ON COLUMN ferry.forwarders.routes IS 'The routes that it works.';
COMMENT ON COLUMN ferry.forwarders.seen_at IS 'When it wrote its row last.';

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

-- Each job is updated twice within seconds: without this, dead rows pile up at the head of the queue.
ALTER TABLE ferry.river_job SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 1
);
