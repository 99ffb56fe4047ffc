-- Statements about dead letters.

-- name: DeadLetterFailures :many
-- What there is to tell of messages that this transaction has made failed.
SELECT
    d.message_id, d.route, m.message_key, d.reason, d.detail, d.attempts, d.http_status, d.error_code, d.error, d.settled_at,
    (
        COALESCE(octet_length(m.kafka_key), 0) + COALESCE(octet_length(m.payload), 0) + COALESCE(pg_column_size(m.headers), 0)
    )::bigint AS record_bytes
FROM ferry.deliveries AS d
JOIN ferry.messages AS m ON m.id = d.message_id
WHERE d.message_id = ANY(@message_ids::bigint[]) AND d.status = 'failed'
ORDER BY d.message_id;

-- name: DeadLettersLoad :many
SELECT
    m.id, m.topic, m.topic_id, m.partition, m."offset", m.kafka_key, m.headers, m.payload, m.produced_at,
    (m.payload IS NULL AND m.payload_sha256 IS NOT NULL)::boolean AS stripped,
    d.status, d.settled_at, d.dead_lettered_at
FROM ferry.messages AS m
JOIN ferry.deliveries AS d ON d.message_id = m.id
WHERE m.id = ANY(@message_ids::bigint[]);

-- name: DeadLettersWritten :exec
-- Only where the message is still failed as it was: a replay may have begun anew meanwhile, or a later failure may have a
-- dead letter of its own to come.
UPDATE ferry.deliveries AS d
SET dead_lettered_at = now()
FROM (
    SELECT unnest(@message_ids::bigint[]) AS message_id, unnest(@failed_ats::timestamptz[]) AS failed_at
) AS w
WHERE d.message_id = w.message_id
    AND d.status = 'failed'
    AND d.settled_at = w.failed_at
    AND d.dead_lettered_at IS NULL;
