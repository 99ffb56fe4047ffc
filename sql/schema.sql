-- Written by make generate from the migrations. Do not edit.

CREATE SCHEMA ferry;

CREATE TYPE ferry.river_job_state AS ENUM (
    'available',
    'cancelled',
    'completed',
    'discarded',
    'pending',
    'retryable',
    'running',
    'scheduled'
);

CREATE FUNCTION ferry.river_job_state_in_bitmask(bitmask bit, state ferry.river_job_state) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE state
        WHEN 'available' THEN get_bit(bitmask, 7)
        WHEN 'cancelled' THEN get_bit(bitmask, 6)
        WHEN 'completed' THEN get_bit(bitmask, 5)
        WHEN 'discarded' THEN get_bit(bitmask, 4)
        WHEN 'pending'   THEN get_bit(bitmask, 3)
        WHEN 'retryable' THEN get_bit(bitmask, 2)
        WHEN 'running'   THEN get_bit(bitmask, 1)
        WHEN 'scheduled' THEN get_bit(bitmask, 0)
        ELSE 0
    END = 1;
$$;

CREATE TABLE ferry.attempts (
    message_id bigint NOT NULL,
    started_at timestamp with time zone NOT NULL,
    next_attempt_at timestamp with time zone,
    attempt integer NOT NULL,
    duration_ms integer NOT NULL,
    http_status integer,
    counted boolean NOT NULL,
    verdict text NOT NULL,
    error_code text,
    error text,
    response text,
    forwarder text NOT NULL
)
PARTITION BY RANGE (started_at);

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

CREATE TABLE ferry.attempts_default (
    message_id bigint NOT NULL,
    started_at timestamp with time zone NOT NULL,
    next_attempt_at timestamp with time zone,
    attempt integer NOT NULL,
    duration_ms integer NOT NULL,
    http_status integer,
    counted boolean NOT NULL,
    verdict text NOT NULL,
    error_code text,
    error text,
    response text,
    forwarder text NOT NULL
);

CREATE TABLE ferry.deliveries (
    message_id bigint NOT NULL,
    job_id bigint,
    due_from timestamp with time zone DEFAULT now() NOT NULL,
    next_attempt_at timestamp with time zone,
    settled_at timestamp with time zone,
    dead_lettered_at timestamp with time zone,
    attempts integer DEFAULT 0 NOT NULL,
    requests integer DEFAULT 0 NOT NULL,
    http_status integer,
    status text DEFAULT 'pending'::text NOT NULL,
    route text NOT NULL,
    reason text,
    detail text,
    error_code text,
    error text,
    key_revision integer DEFAULT 0 NOT NULL,
    CONSTRAINT deliveries_reason_check CHECK (((status = 'failed'::text) = (reason IS NOT NULL))),
    CONSTRAINT deliveries_settled_check CHECK (((status = 'pending'::text) = (settled_at IS NULL))),
    CONSTRAINT deliveries_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'delivered'::text, 'failed'::text])))
)
WITH (fillfactor='40', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_cost_delay='1', autovacuum_vacuum_insert_scale_factor='0.1', autovacuum_analyze_scale_factor='0.02');

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

COMMENT ON COLUMN ferry.deliveries.key_revision IS 'How many replays asked for a new Idempotency-Key, which then ends in #r<n>.';

CREATE TABLE ferry.failures (
    message_id bigint NOT NULL,
    failed_at timestamp with time zone DEFAULT now() NOT NULL,
    http_status integer,
    route text NOT NULL,
    reason text NOT NULL,
    error_code text
);

COMMENT ON TABLE ferry.failures IS 'One row for each failed message, to find them by; deleted when it is replayed.';

COMMENT ON COLUMN ferry.failures.message_id IS 'ferry.messages.id';

COMMENT ON COLUMN ferry.failures.failed_at IS 'When it failed.';

COMMENT ON COLUMN ferry.failures.http_status IS 'As in deliveries.';

COMMENT ON COLUMN ferry.failures.route IS 'As in deliveries.';

COMMENT ON COLUMN ferry.failures.reason IS 'As in deliveries.';

COMMENT ON COLUMN ferry.failures.error_code IS 'As in deliveries.';

CREATE TABLE ferry.forwarders (
    id text NOT NULL,
    version text NOT NULL,
    routes text[] NOT NULL,
    seen_at timestamp with time zone DEFAULT now() NOT NULL,
    rescue_after_ms bigint
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');

COMMENT ON TABLE ferry.forwarders IS 'The forwarders that run or ran, each of which writes its row every 10 seconds.';

COMMENT ON COLUMN ferry.forwarders.id IS 'The forwarder, as in attempts.forwarder.';

COMMENT ON COLUMN ferry.forwarders.version IS 'Its version.';

COMMENT ON COLUMN ferry.forwarders.routes IS 'The routes that it works.';

COMMENT ON COLUMN ferry.forwarders.seen_at IS 'When it wrote its row last.';

COMMENT ON COLUMN ferry.forwarders.rescue_after_ms IS 'Milliseconds after which one of its running jobs may be taken to be lost, by its route file. Null: a version that does not say.';

CREATE TABLE ferry.installation (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    singleton boolean DEFAULT true NOT NULL,
    CONSTRAINT installation_singleton_check CHECK (singleton)
);

COMMENT ON TABLE ferry.installation IS 'One row, written by the migration that makes it. A copy or a restored database keeps its id.';

COMMENT ON COLUMN ferry.installation.id IS 'Tells this database from others; part of the metadata of committed offsets.';

COMMENT ON COLUMN ferry.installation.singleton IS 'Keeps it at one row.';

CREATE TABLE ferry.ledger (
    route text NOT NULL,
    topic text NOT NULL,
    topic_id uuid NOT NULL,
    partition integer NOT NULL,
    consumed bigint DEFAULT 0 NOT NULL,
    stored bigint DEFAULT 0 NOT NULL,
    duplicates bigint DEFAULT 0 NOT NULL,
    conflicts bigint DEFAULT 0 NOT NULL,
    unstorable bigint DEFAULT 0 NOT NULL,
    filtered bigint DEFAULT 0 NOT NULL,
    skipped_tombstones bigint DEFAULT 0 NOT NULL,
    CONSTRAINT ledger_sum_check CHECK ((consumed = (((stored + duplicates) + filtered) + skipped_tombstones)))
)
WITH (fillfactor='20', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');

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

CREATE TABLE ferry.messages (
    id bigint NOT NULL,
    received_at timestamp with time zone DEFAULT now() NOT NULL,
    produced_at timestamp with time zone,
    "offset" bigint NOT NULL,
    partition integer NOT NULL,
    topic_id uuid NOT NULL,
    topic text NOT NULL,
    route text NOT NULL,
    message_key text NOT NULL COLLATE pg_catalog."C",
    lane text,
    payload_sha256 bytea,
    kafka_key bytea,
    headers jsonb,
    payload bytea
)
WITH (autovacuum_vacuum_insert_scale_factor='0.05', autovacuum_analyze_scale_factor='0.02');

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

CREATE VIEW ferry.message_status AS
 SELECT m.id AS message_id,
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
   FROM (ferry.messages m
     JOIN ferry.deliveries d ON ((d.message_id = m.id)));

COMMENT ON VIEW ferry.message_status IS 'What became of each message, for people.';

ALTER TABLE ferry.messages ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME ferry.messages_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE ferry.positions (
    "group" text NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    topic_id uuid NOT NULL,
    next_offset bigint NOT NULL,
    expired_unread bigint DEFAULT 0 NOT NULL,
    skipped bigint DEFAULT 0 NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='20', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');

COMMENT ON TABLE ferry.positions IS 'Where each consumer group stands in each partition: the truth, before Kafka''s committed offset.';

COMMENT ON COLUMN ferry.positions."group" IS 'Kafka consumer group.';

COMMENT ON COLUMN ferry.positions.topic IS 'Kafka topic.';

COMMENT ON COLUMN ferry.positions.partition IS 'Kafka partition.';

COMMENT ON COLUMN ferry.positions.topic_id IS 'Kafka''s UUID of the topic that next_offset counts in.';

COMMENT ON COLUMN ferry.positions.next_offset IS 'The next offset to read.';

COMMENT ON COLUMN ferry.positions.expired_unread IS 'Offsets that Kafka removed before they were read.';

COMMENT ON COLUMN ferry.positions.skipped IS 'Offsets that an operator skipped.';

COMMENT ON COLUMN ferry.positions.updated_at IS 'When the row was written last.';

CREATE TABLE ferry.purged (
    route text NOT NULL,
    topic text NOT NULL,
    topic_id uuid NOT NULL,
    partition integer NOT NULL,
    delivered bigint DEFAULT 0 NOT NULL,
    failed bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='20', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');

COMMENT ON TABLE ferry.purged IS 'Sums of the messages that were deleted after their retention: stored = the rows there are + these.';

COMMENT ON COLUMN ferry.purged.route IS 'As in ledger.';

COMMENT ON COLUMN ferry.purged.topic IS 'As in ledger.';

COMMENT ON COLUMN ferry.purged.topic_id IS 'As in ledger.';

COMMENT ON COLUMN ferry.purged.partition IS 'As in ledger.';

COMMENT ON COLUMN ferry.purged.delivered IS 'Messages that were delivered.';

COMMENT ON COLUMN ferry.purged.failed IS 'Messages that had failed.';

CREATE TABLE ferry.rate_leases (
    route text NOT NULL,
    next_at timestamp with time zone NOT NULL,
    leased_at timestamp with time zone,
    granted integer DEFAULT 0 NOT NULL
)
WITH (fillfactor='10', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');

COMMENT ON TABLE ferry.rate_leases IS 'How far the requests of routes with a global rate limit are given out.';

COMMENT ON COLUMN ferry.rate_leases.route IS 'Name of the route.';

COMMENT ON COLUMN ferry.rate_leases.next_at IS 'When the next request is due that no forwarder has leased yet.';

COMMENT ON COLUMN ferry.rate_leases.leased_at IS 'When a forwarder last asked. Null: nobody has.';

COMMENT ON COLUMN ferry.rate_leases.granted IS 'How many requests it got; they are the last ones before next_at.';

CREATE TABLE ferry.reconcile (
    seen_to bigint DEFAULT 0 NOT NULL,
    sure_to bigint DEFAULT 0 NOT NULL,
    mark bigint DEFAULT 0 NOT NULL,
    marked_at timestamp with time zone DEFAULT now() NOT NULL,
    checked bigint DEFAULT 0 NOT NULL,
    failures_checked bigint DEFAULT 0 NOT NULL,
    singleton boolean DEFAULT true NOT NULL,
    CONSTRAINT reconcile_singleton_check CHECK (singleton)
);

COMMENT ON TABLE ferry.reconcile IS 'One row: how far reconcile has come.';

COMMENT ON COLUMN ferry.reconcile.seen_to IS 'Messages up to this id were looked at once; those then pending are in unsettled.';

COMMENT ON COLUMN ferry.reconcile.sure_to IS 'Messages up to this id were looked at again, after every transaction that could have stored one had ended.';

COMMENT ON COLUMN ferry.reconcile.mark IS 'What seen_to was at marked_at: how far the second look goes.';

COMMENT ON COLUMN ferry.reconcile.marked_at IS 'When the mark was set.';

COMMENT ON COLUMN ferry.reconcile.checked IS 'The message in unsettled at which the last run ended; the next one goes on behind it.';

COMMENT ON COLUMN ferry.reconcile.failures_checked IS 'The same in failures.';

COMMENT ON COLUMN ferry.reconcile.singleton IS 'Keeps it at one row.';

CREATE TABLE ferry.replays (
    id bigint NOT NULL,
    filter text NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    up_to bigint NOT NULL,
    done_to bigint DEFAULT 0 NOT NULL,
    replayed bigint DEFAULT 0 NOT NULL
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

ALTER TABLE ferry.replays ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME ferry.replays_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE ferry.retention (
    keep_seconds bigint NOT NULL,
    swept_to bigint DEFAULT 0 NOT NULL,
    swept_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE ferry.retention IS 'How far the purge of delivered messages has come: a row for each retention that a route has.';

COMMENT ON COLUMN ferry.retention.keep_seconds IS 'retention.delivered of the routes that the row is about.';

COMMENT ON COLUMN ferry.retention.swept_to IS 'Messages up to this id were looked at since swept_at.';

COMMENT ON COLUMN ferry.retention.swept_at IS 'When the purge last began with the oldest message.';

CREATE TABLE ferry.schema_versions (
    version integer NOT NULL,
    name text NOT NULL,
    must_know integer NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE ferry.schema_versions IS 'The migrations that were applied.';

COMMENT ON COLUMN ferry.schema_versions.version IS 'Number of the migration.';

COMMENT ON COLUMN ferry.schema_versions.name IS 'Its name.';

COMMENT ON COLUMN ferry.schema_versions.must_know IS 'The oldest schema number that a binary must know to run on this one. The largest counts.';

COMMENT ON COLUMN ferry.schema_versions.applied_at IS 'When it was applied.';

CREATE TABLE ferry.tallies (
    slot smallint NOT NULL,
    route text NOT NULL,
    delivered bigint DEFAULT 0 NOT NULL,
    failed bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='10', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');

COMMENT ON TABLE ferry.tallies IS 'Sums of settled messages; add up the slots of a route.';

COMMENT ON COLUMN ferry.tallies.slot IS 'Hash of the forwarder, modulo 16.';

COMMENT ON COLUMN ferry.tallies.route IS 'Name of the route.';

COMMENT ON COLUMN ferry.tallies.delivered IS 'Messages that became delivered.';

COMMENT ON COLUMN ferry.tallies.failed IS 'Messages that became failed after they were stored as pending.';

CREATE TABLE ferry.unsettled (
    message_id bigint NOT NULL,
    added_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='1000');

COMMENT ON TABLE ferry.unsettled IS 'Messages that were pending when reconcile looked, or were made so by a replay: it looks at them again.';

COMMENT ON COLUMN ferry.unsettled.message_id IS 'ferry.messages.id';

COMMENT ON COLUMN ferry.unsettled.added_at IS 'When it was put here, by reconcile or by the last replay.';

ALTER TABLE ONLY ferry.attempts ATTACH PARTITION ferry.attempts_default DEFAULT;

ALTER TABLE ONLY ferry.deliveries
    ADD CONSTRAINT deliveries_pkey PRIMARY KEY (message_id);

ALTER TABLE ONLY ferry.failures
    ADD CONSTRAINT failures_pkey PRIMARY KEY (message_id);

ALTER TABLE ONLY ferry.forwarders
    ADD CONSTRAINT forwarders_pkey PRIMARY KEY (id);

ALTER TABLE ONLY ferry.installation
    ADD CONSTRAINT installation_pkey PRIMARY KEY (singleton);

ALTER TABLE ONLY ferry.ledger
    ADD CONSTRAINT ledger_pkey PRIMARY KEY (route, topic, topic_id, partition);

ALTER TABLE ONLY ferry.messages
    ADD CONSTRAINT messages_pkey PRIMARY KEY (id);

ALTER TABLE ONLY ferry.messages
    ADD CONSTRAINT messages_route_message_key_key UNIQUE (route, message_key);

ALTER TABLE ONLY ferry.positions
    ADD CONSTRAINT positions_pkey PRIMARY KEY ("group", topic, partition);

ALTER TABLE ONLY ferry.purged
    ADD CONSTRAINT purged_pkey PRIMARY KEY (route, topic, topic_id, partition);

ALTER TABLE ONLY ferry.rate_leases
    ADD CONSTRAINT rate_leases_pkey PRIMARY KEY (route);

ALTER TABLE ONLY ferry.reconcile
    ADD CONSTRAINT reconcile_pkey PRIMARY KEY (singleton);

ALTER TABLE ONLY ferry.replays
    ADD CONSTRAINT replays_pkey PRIMARY KEY (id);

ALTER TABLE ONLY ferry.retention
    ADD CONSTRAINT retention_pkey PRIMARY KEY (keep_seconds);

ALTER TABLE ONLY ferry.schema_versions
    ADD CONSTRAINT schema_versions_pkey PRIMARY KEY (version);

ALTER TABLE ONLY ferry.tallies
    ADD CONSTRAINT tallies_pkey PRIMARY KEY (slot, route);

ALTER TABLE ONLY ferry.unsettled
    ADD CONSTRAINT unsettled_pkey PRIMARY KEY (message_id);

CREATE INDEX attempts_message_id_idx ON ONLY ferry.attempts USING btree (message_id);

CREATE INDEX attempts_default_message_id_idx ON ferry.attempts_default USING btree (message_id);

CREATE INDEX failures_reason_message_id_idx ON ferry.failures USING btree (reason, message_id);

CREATE INDEX failures_route_failed_at_idx ON ferry.failures USING btree (route, failed_at);

CREATE INDEX failures_route_message_id_idx ON ferry.failures USING btree (route, message_id);

CREATE INDEX messages_position_idx ON ferry.messages USING btree (route, topic_id, partition, "offset") INCLUDE (id);

ALTER INDEX ferry.attempts_message_id_idx ATTACH PARTITION ferry.attempts_default_message_id_idx;
