-- Statements of retention (store.Purge). Each one goes along an index, a batch at a time.

-- name: RetentionGet :one
-- Where the purge of delivered messages with this retention stands, and whether it is long ago that it began with the
-- oldest one.
INSERT INTO ferry.retention AS r (keep_seconds)
VALUES (@keep_seconds)
ON CONFLICT (keep_seconds) DO UPDATE SET keep_seconds = excluded.keep_seconds
RETURNING r.swept_to, (r.swept_at < now() - make_interval(secs => @sweep_seconds::float8))::bool AS old;

-- name: RetentionSwept :execrows
-- Only from where this run found it: another forwarder may be at the same.
UPDATE ferry.retention AS r
SET swept_to = @to_id
WHERE r.keep_seconds = @keep_seconds AND r.swept_to = @from_id;

-- name: RetentionAnew :execrows
UPDATE ferry.retention AS r
SET swept_to = 0, swept_at = now()
WHERE r.keep_seconds = @keep_seconds AND r.swept_to = @from_id;

-- name: MessageBefore :one
-- The last message behind an id that was received before a time, or that id; found by halving, since ids grow with
-- received_at, give or take the length of a transaction.
WITH RECURSIVE s AS (
    SELECT @after::bigint AS lo, COALESCE((SELECT max(m.id) FROM ferry.messages AS m), 0)::bigint AS hi
    UNION ALL
    SELECT
        CASE WHEN p.received_at < @at::timestamptz THEN p.id ELSE s.lo END,
        CASE WHEN p.received_at < @at::timestamptz THEN s.hi ELSE (s.lo + s.hi + 1) / 2 - 1 END
    FROM s
    CROSS JOIN LATERAL (
        SELECT x.id, x.received_at FROM ferry.messages AS x WHERE x.id >= (s.lo + s.hi + 1) / 2 ORDER BY x.id LIMIT 1
    ) AS p
    WHERE s.lo < s.hi
)
SELECT max(s.lo)::bigint AS id FROM s;

-- name: PurgeLookDelivered :one
-- The next messages behind an id, and which of them are delivered and past their time.
WITH w AS (
    SELECT d.message_id, d.status, d.route, d.settled_at
    FROM ferry.deliveries AS d
    WHERE d.message_id > @after AND d.message_id <= @up_to
    ORDER BY d.message_id
    LIMIT @batch
)
SELECT
    count(*)::bigint AS looked,
    COALESCE(max(w.message_id), 0)::bigint AS last,
    COALESCE(
        array_agg(w.message_id ORDER BY w.message_id)
        FILTER (WHERE w.status = 'delivered' AND w.route = ANY(@routes::text[]) AND w.settled_at < @cutoff::timestamptz),
        '{}'
    )::bigint[] AS due
FROM w;

-- name: PurgeLookFailed :many
-- The next failures of a route that are past their time, and whether their dead letter is written.
SELECT f.message_id, f.failed_at, (d.dead_lettered_at IS NOT NULL)::bool AS dead_lettered
FROM ferry.failures AS f
CROSS JOIN LATERAL (
    SELECT x.dead_lettered_at FROM ferry.deliveries AS x WHERE x.message_id = f.message_id LIMIT 1
) AS d
WHERE f.route = @route
    AND f.failed_at < @cutoff::timestamptz
    AND (f.failed_at, f.message_id) > (@after_at::timestamptz, @after_id::bigint)
ORDER BY f.failed_at, f.message_id
LIMIT @batch;

-- name: PurgeLock :many
-- What is still to be purged, looked at again under the lock. What another transaction has locked is about to change, and
-- left for another time.
SELECT d.message_id
FROM ferry.deliveries AS d
WHERE d.message_id = ANY(@message_ids::bigint[])
    AND d.route = ANY(@routes::text[])
    AND d.status = @status
    AND d.settled_at < @cutoff::timestamptz
    AND (d.dead_lettered_at IS NOT NULL OR NOT @dead_letters::bool)
ORDER BY d.message_id
FOR UPDATE SKIP LOCKED;

-- name: PurgeDelete :many
-- Deletes messages whose deliveries are locked, and adds them to the sums, in the order of the primary key, so that two
-- transactions never wait for each other crosswise. Reconcile deletes from unsettled without having locked the deliveries:
-- what it is at is left to it.
WITH m AS (
    DELETE FROM ferry.messages AS x
    WHERE x.id = ANY(@message_ids::bigint[])
    RETURNING x.route, x.topic, x.topic_id, x.partition
), d AS (
    DELETE FROM ferry.deliveries AS x WHERE x.message_id = ANY(@message_ids::bigint[])
), f AS (
    DELETE FROM ferry.failures AS x WHERE x.message_id = ANY(@message_ids::bigint[])
), u AS (
    DELETE FROM ferry.unsettled AS x
    WHERE x.message_id IN (
        SELECT y.message_id
        FROM ferry.unsettled AS y
        WHERE y.message_id = ANY(@message_ids::bigint[])
        FOR UPDATE SKIP LOCKED
    )
), p AS (
    INSERT INTO ferry.purged AS x (route, topic, topic_id, partition, delivered, failed)
    SELECT
        m.route, m.topic, m.topic_id, m.partition,
        count(*) FILTER (WHERE @status::text = 'delivered'),
        count(*) FILTER (WHERE @status::text = 'failed')
    FROM m
    GROUP BY m.route, m.topic, m.topic_id, m.partition
    ORDER BY m.route, m.topic, m.topic_id, m.partition
    ON CONFLICT (route, topic, topic_id, partition) DO UPDATE
    SET delivered = x.delivered + excluded.delivered, failed = x.failed + excluded.failed
)
SELECT m.route, count(*)::bigint AS messages FROM m GROUP BY m.route ORDER BY m.route;
