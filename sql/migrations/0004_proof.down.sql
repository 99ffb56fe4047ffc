-- Takes away what 0004 made. What purged has of messages that are gone is lost with it: an audit after a later up says that
-- they are missing.
--
-- Locks: ACCESS EXCLUSIVE on messages while its key's index is built anew, on the others for a moment. Stop the binaries first.

DROP TABLE ferry.replays;
DROP TABLE ferry.retention;
DROP TABLE ferry.purged;

DROP INDEX ferry.failures_reason_message_id_idx;
DROP INDEX ferry.failures_route_message_id_idx;
CREATE INDEX failures_reason_failed_at_idx ON ferry.failures (reason, failed_at);
CREATE INDEX failures_failed_at_idx ON ferry.failures (failed_at);

ALTER TABLE ferry.deliveries DROP COLUMN key_revision;
DROP INDEX ferry.messages_position_idx;

DROP VIEW ferry.message_status;
ALTER TABLE ferry.messages ALTER COLUMN message_key TYPE text;
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
