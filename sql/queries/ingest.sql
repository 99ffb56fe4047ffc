-- Statements of the ingest transaction (store.Save), in its order.

-- name: PositionsGet :many
SELECT p.topic, p.partition, p.topic_id, p.next_offset
FROM ferry.positions AS p
JOIN (
    SELECT unnest(@topics::text[]) AS topic, unnest(@partitions::int[]) AS partition
) AS want ON want.topic = p.topic AND want.partition = p.partition
WHERE p."group" = @consumer_group;

-- name: PositionsAdvance :many
-- Moves each row from where this process left it; a row that stands elsewhere, or is of another topic, stays.
UPDATE ferry.positions AS p
SET next_offset = a.next_offset, updated_at = now()
FROM (
    SELECT
        unnest(@topics::text[]) AS topic,
        unnest(@partitions::int[]) AS partition,
        unnest(@topic_ids::uuid[]) AS topic_id,
        unnest(@from_offsets::bigint[]) AS from_offset,
        unnest(@next_offsets::bigint[]) AS next_offset
) AS a
WHERE p."group" = @consumer_group
    AND p.topic = a.topic
    AND p.partition = a.partition
    AND p.topic_id = a.topic_id
    AND p.next_offset = a.from_offset
RETURNING p.topic, p.partition;

-- name: PositionMake :execrows
INSERT INTO ferry.positions ("group", topic, partition, topic_id, next_offset, expired_unread)
VALUES (@consumer_group, @topic, @partition, @topic_id, @next_offset, @expired)
ON CONFLICT ("group", topic, partition) DO NOTHING;

-- name: PositionMove :execrows
UPDATE ferry.positions AS p
SET
    topic_id = @topic_id, next_offset = @next_offset, expired_unread = p.expired_unread + @expired::bigint, updated_at = now()
WHERE p."group" = @consumer_group
    AND p.topic = @topic
    AND p.partition = @partition
    AND p.topic_id = @was_topic_id
    AND p.next_offset = @was_offset;

-- name: Installation :one
SELECT id::text AS id FROM ferry.installation;

-- name: MessagesInsert :many
-- Ids are given in the order of the arrays. What is not returned exists already.
INSERT INTO ferry.messages (
    route, message_key, topic, topic_id, partition, "offset", kafka_key, headers, payload, payload_sha256, produced_at
)
SELECT
    i.route, i.message_key, i.topic, i.topic_id, i.partition, i.record_offset, i.kafka_key, NULLIF(i.headers, '')::jsonb,
    i.payload, i.payload_sha256, i.produced_at
FROM (
    SELECT
        unnest(@ords::int[]) AS ord,
        unnest(@routes::text[]) AS route,
        unnest(@message_keys::text[]) AS message_key,
        unnest(@topics::text[]) AS topic,
        unnest(@topic_ids::uuid[]) AS topic_id,
        unnest(@partitions::int[]) AS partition,
        unnest(@record_offsets::bigint[]) AS record_offset,
        unnest(@kafka_keys::bytea[]) AS kafka_key,
        unnest(@headers::text[]) AS headers,
        unnest(@payloads::bytea[]) AS payload,
        unnest(@payload_sha256s::bytea[]) AS payload_sha256,
        unnest(@produced_ats::timestamptz[]) AS produced_at
) AS i
ORDER BY i.ord
ON CONFLICT (route, message_key) DO NOTHING
RETURNING id, route, message_key;

-- name: MessagesByKey :many
SELECT m.route, m.message_key, m.payload_sha256, m.topic, m.topic_id, m.partition, m."offset"
FROM ferry.messages AS m
JOIN (
    SELECT unnest(@routes::text[]) AS route, unnest(@message_keys::text[]) AS message_key
) AS want ON want.route = m.route AND want.message_key = m.message_key;

-- name: DeliveriesInsert :exec
INSERT INTO ferry.deliveries (message_id, route, job_id)
SELECT unnest(@message_ids::bigint[]), unnest(@routes::text[]), unnest(@job_ids::bigint[]);

-- name: DeliveriesInsertFailed :exec
-- Conflicts and what could not be stored: failed from the start.
WITH i AS (
    SELECT
        unnest(@message_ids::bigint[]) AS message_id,
        unnest(@routes::text[]) AS route,
        unnest(@reasons::text[]) AS reason,
        unnest(@details::text[]) AS detail
), d AS (
    INSERT INTO ferry.deliveries (message_id, route, status, reason, detail, settled_at)
    SELECT i.message_id, i.route, 'failed', i.reason, NULLIF(i.detail, ''), now() FROM i
)
INSERT INTO ferry.failures (message_id, route, reason)
SELECT i.message_id, i.route, i.reason FROM i;

-- name: LedgerAdd :exec
-- In the order of the primary key, so that two transactions never wait for each other crosswise.
INSERT INTO ferry.ledger AS l (
    route, topic, topic_id, partition, consumed, stored, duplicates, conflicts, unstorable, filtered, skipped_tombstones
)
SELECT
    i.route, i.topic, i.topic_id, i.partition, i.consumed, i.stored, i.duplicates, i.conflicts, i.unstorable, i.filtered,
    i.skipped_tombstones
FROM (
    SELECT
        unnest(@routes::text[]) AS route,
        unnest(@topics::text[]) AS topic,
        unnest(@topic_ids::uuid[]) AS topic_id,
        unnest(@partitions::int[]) AS partition,
        unnest(@consumed::bigint[]) AS consumed,
        unnest(@stored::bigint[]) AS stored,
        unnest(@duplicates::bigint[]) AS duplicates,
        unnest(@conflicts::bigint[]) AS conflicts,
        unnest(@unstorable::bigint[]) AS unstorable,
        unnest(@filtered::bigint[]) AS filtered,
        unnest(@skipped_tombstones::bigint[]) AS skipped_tombstones
) AS i
ORDER BY i.route, i.topic, i.topic_id, i.partition
ON CONFLICT (route, topic, topic_id, partition) DO UPDATE
SET consumed = l.consumed + excluded.consumed,
    stored = l.stored + excluded.stored,
    duplicates = l.duplicates + excluded.duplicates,
    conflicts = l.conflicts + excluded.conflicts,
    unstorable = l.unstorable + excluded.unstorable,
    filtered = l.filtered + excluded.filtered,
    skipped_tombstones = l.skipped_tombstones + excluded.skipped_tombstones;
