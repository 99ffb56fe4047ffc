-- Statements of reading again (store.Save of a batch with Again).

-- name: MissingCount :many
-- What the ledger counts for a partition, and what there is: in one snapshot, so that running ingesters and purges, which
-- change both sides in one transaction, change nothing of the difference. Zero is no topic's own id, so that there the name
-- has to be looked at; else the index alone answers.
SELECT
    l.route, l.consumed, l.stored, COALESCE(p.delivered + p.failed, 0)::bigint AS purged,
    m.messages::bigint AS messages, COALESCE(m.first_offset, -1)::bigint AS first_offset
FROM ferry.ledger AS l
LEFT JOIN ferry.purged AS p
    ON p.route = l.route AND p.topic = l.topic AND p.topic_id = l.topic_id AND p.partition = l.partition
CROSS JOIN LATERAL (
    SELECT sum(c.messages) AS messages, min(c.first_offset) AS first_offset
    FROM (
        SELECT count(*) AS messages, min(x."offset") AS first_offset
        FROM ferry.messages AS x
        WHERE x.route = l.route AND x.topic_id = @topic_id AND x.partition = @partition AND @topic_id <> @no_topic_id::uuid
        UNION ALL
        SELECT count(*), min(x."offset")
        FROM ferry.messages AS x
        WHERE x.route = l.route AND x.topic_id = @topic_id AND x.partition = @partition AND x.topic = @topic
            AND @topic_id = @no_topic_id::uuid
    ) AS c
) AS m
WHERE l.route = ANY(@routes::text[]) AND l.topic = @topic AND l.topic_id = @topic_id AND l.partition = @partition;

-- name: StatementLimit :exec
-- For the rest of the transaction.
SELECT set_config('statement_timeout', @milliseconds::text, true);

-- name: UnstorableLock :many
-- The messages of records, by their positions, that the database refused when they were read. PurgeDelete deletes them.
SELECT d.message_id, d.route, m.record_offset
FROM (
    SELECT
        unnest(@routes::text[]) AS route,
        unnest(@topics::text[]) AS topic,
        unnest(@topic_ids::uuid[]) AS topic_id,
        unnest(@partitions::int[]) AS partition,
        unnest(@record_offsets::bigint[]) AS record_offset
) AS want
CROSS JOIN LATERAL (
    SELECT x.id, x."offset" AS record_offset
    FROM ferry.messages AS x
    WHERE x.route = want.route
        AND x.topic_id = want.topic_id
        AND x.partition = want.partition
        AND x."offset" = want.record_offset
        AND x.topic = want.topic
        AND EXISTS (SELECT FROM ferry.failures AS f WHERE f.message_id = x.id AND f.reason = 'unstorable')
    LIMIT 1
) AS m
JOIN ferry.deliveries AS d ON d.message_id = m.id
WHERE d.status = 'failed' AND d.reason = 'unstorable'
ORDER BY d.message_id
FOR UPDATE OF d;

-- name: MissingSettled :many
-- What the sums count as delivered and failed, beyond what there is and what was purged: messages that were so when
-- somebody deleted them. It reads all deliveries.
SELECT
    s.route,
    sum(s.delivered)::bigint AS delivered,
    sum(s.failed)::bigint AS failed
FROM (
    SELECT t.route, t.delivered, t.failed FROM ferry.tallies AS t WHERE t.route = ANY(@routes::text[])
    UNION ALL
    SELECT l.route, 0, l.conflicts + l.unstorable FROM ferry.ledger AS l WHERE l.route = ANY(@routes::text[])
    UNION ALL
    SELECT p.route, -p.delivered, -p.failed FROM ferry.purged AS p WHERE p.route = ANY(@routes::text[])
    UNION ALL
    SELECT d.route, -count(*) FILTER (WHERE d.status = 'delivered'), -count(*) FILTER (WHERE d.status = 'failed')
    FROM ferry.deliveries AS d
    WHERE d.route = ANY(@routes::text[])
    GROUP BY d.route
) AS s
GROUP BY s.route;
