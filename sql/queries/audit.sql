-- Statements of audit, all in one snapshot, which only read. deliveries is read whole for the counts, messages never: the
-- counts come from messages_position_idx, whose rows hold all that is asked for.
--
-- marks are the ids of the rows, hashed and joined by XOR: two sides with equal marks have the same ids.

-- name: AuditLedger :many
SELECT
    COALESCE(l.route, p.route)::text AS route,
    COALESCE(l.topic, p.topic)::text AS topic,
    COALESCE(l.topic_id, p.topic_id)::uuid AS topic_id,
    COALESCE(l.partition, p.partition)::integer AS partition,
    COALESCE(l.consumed, 0)::bigint AS consumed,
    COALESCE(l.stored, 0)::bigint AS stored,
    COALESCE(l.duplicates, 0)::bigint AS duplicates,
    COALESCE(l.conflicts, 0)::bigint AS conflicts,
    COALESCE(l.unstorable, 0)::bigint AS unstorable,
    COALESCE(l.filtered, 0)::bigint AS filtered,
    COALESCE(l.skipped_tombstones, 0)::bigint AS skipped_tombstones,
    COALESCE(p.delivered, 0)::bigint AS purged_delivered,
    COALESCE(p.failed, 0)::bigint AS purged_failed
FROM ferry.ledger AS l
FULL JOIN ferry.purged AS p USING (route, topic, topic_id, partition)
ORDER BY 1, 2, 4, 3;

-- name: AuditTallies :many
SELECT t.route, sum(t.delivered)::bigint AS delivered, sum(t.failed)::bigint AS failed
FROM ferry.tallies AS t
GROUP BY t.route;

-- name: AuditPositions :many
SELECT p."group", p.topic, p.partition, p.topic_id, p.next_offset, p.expired_unread, p.skipped
FROM ferry.positions AS p
ORDER BY p."group", p.topic, p.partition;

-- name: AuditWorked :many
-- The routes that some live forwarder works.
SELECT DISTINCT unnest(f.routes)::text AS route
FROM ferry.forwarders AS f
WHERE f.seen_at > now() - make_interval(secs => @alive_seconds::float8);

-- name: AuditMessages :many
SELECT
    m.route, m.topic_id, m.partition, count(*)::bigint AS n, bit_xor(hashint8extended(m.id, 0))::bigint AS mark
FROM ferry.messages AS m
GROUP BY m.route, m.topic_id, m.partition;

-- name: AuditDeliveries :many
SELECT d.route, d.status, count(*)::bigint AS n, bit_xor(hashint8extended(d.message_id, 0))::bigint AS mark
FROM ferry.deliveries AS d
GROUP BY d.route, d.status;

-- name: AuditFailures :many
SELECT f.route, count(*)::bigint AS n FROM ferry.failures AS f GROUP BY f.route;

-- name: AuditMessagesAlone :many
SELECT m.route, count(*)::bigint AS n, ((array_agg(m.id ORDER BY m.id))[1:@examples::int])::bigint[] AS ids
FROM ferry.messages AS m
WHERE m.id >= @from_id
    AND (@since::timestamptz IS NULL OR m.received_at >= @since)
    AND NOT EXISTS (SELECT FROM ferry.deliveries AS d WHERE d.message_id = m.id)
GROUP BY m.route;

-- name: AuditDeliveriesAlone :many
-- Nobody knows any more when such a message was received; due_from is no earlier.
SELECT d.route, count(*)::bigint AS n, ((array_agg(d.message_id ORDER BY d.message_id))[1:@examples::int])::bigint[] AS ids
FROM ferry.deliveries AS d
WHERE d.message_id >= @from_id
    AND (@since::timestamptz IS NULL OR d.due_from >= @since)
    AND NOT EXISTS (SELECT FROM ferry.messages AS m WHERE m.id = d.message_id)
GROUP BY d.route;

-- name: AuditUnknown :many
-- Messages of a partition that the ledger does not know.
SELECT m.id, m.topic
FROM ferry.messages AS m
WHERE m.route = @route AND m.topic_id = @topic_id AND m.partition = @partition
ORDER BY m."offset"
LIMIT @examples::int;

-- name: AuditPending :many
-- Pending messages that nothing will send. One without a job waits in its lane, if it has one.
SELECT
    k.route, k.finding::text AS finding, count(*)::bigint AS n,
    ((array_agg(k.message_id ORDER BY k.message_id))[1:@examples::int])::bigint[] AS ids
FROM (
    SELECT
        d.message_id, d.route,
        CASE
            WHEN d.job_id IS NULL THEN
                CASE WHEN NOT EXISTS (
                    SELECT FROM ferry.messages AS m WHERE m.id = d.message_id AND m.lane IS NOT NULL
                ) THEN 'none' END
            WHEN j.id IS NULL THEN 'missing'
            WHEN j.state IN ('cancelled', 'completed', 'discarded') THEN j.state::text
            WHEN j.kind <> 'forward' OR j.queue <> d.route OR NOT COALESCE(j.args -> 'ids' @> to_jsonb(d.message_id), false)
                THEN 'foreign'
        END AS finding
    FROM ferry.deliveries AS d
    LEFT JOIN ferry.river_job AS j ON j.id = d.job_id
    WHERE d.status = 'pending' AND d.message_id >= @from_id
) AS k
WHERE k.finding IS NOT NULL
    -- Repaired by SQL: told as that, and put right as that.
    AND NOT EXISTS (SELECT FROM ferry.failures AS f WHERE f.message_id = k.message_id)
    AND (
        @since::timestamptz IS NULL
        OR EXISTS (SELECT FROM ferry.messages AS m WHERE m.id = k.message_id AND m.id >= @from_id AND m.received_at >= @since)
    )
GROUP BY k.route, k.finding
ORDER BY k.route, k.finding;

-- name: AuditFailed :many
-- Failed messages that the lists do not have, or whose dead letter is not written.
SELECT
    d.message_id, d.route, d.settled_at, (f.message_id IS NULL)::boolean AS unlisted,
    COALESCE(d.dead_lettered_at IS NULL AND d.route = ANY(@lettered::text[]), false)::boolean AS unwritten
FROM ferry.deliveries AS d
LEFT JOIN ferry.failures AS f ON f.message_id = d.message_id
WHERE d.status = 'failed' AND d.message_id >= @from_id
    AND (f.message_id IS NULL OR d.dead_lettered_at IS NULL AND d.route = ANY(@lettered::text[]))
    AND (
        @since::timestamptz IS NULL
        OR EXISTS (SELECT FROM ferry.messages AS m WHERE m.id = d.message_id AND m.id >= @from_id AND m.received_at >= @since)
    )
ORDER BY d.message_id;

-- name: AuditLetters :many
-- Dead letters under way, each with the failure that it is of.
SELECT COALESCE(j.args ->> 'message_id', '')::text AS message_id, COALESCE(j.args ->> 'failed_at', '')::text AS failed_at
FROM ferry.river_job AS j
WHERE j.kind = 'dead_letter' AND j.state IN ('available', 'pending', 'retryable', 'running', 'scheduled');

-- name: AuditUnfailed :many
-- Rows of failures whose message is not failed, or gone.
SELECT
    f.route, COALESCE(d.status, 'gone')::text AS finding, count(*)::bigint AS n,
    ((array_agg(f.message_id ORDER BY f.message_id))[1:@examples::int])::bigint[] AS ids
FROM ferry.failures AS f
LEFT JOIN ferry.deliveries AS d ON d.message_id = f.message_id
WHERE f.message_id >= @from_id AND d.status IS DISTINCT FROM 'failed'
    AND (
        @since::timestamptz IS NULL
        OR EXISTS (SELECT FROM ferry.messages AS m WHERE m.id = f.message_id AND m.id >= @from_id AND m.received_at >= @since)
    )
GROUP BY f.route, COALESCE(d.status, 'gone')
ORDER BY 1, 2;

-- name: AuditUnsent :many
-- Delivered messages that were never sent, or whose last request did not deliver them: somebody's SQL did.
SELECT k.route, count(*)::bigint AS n, ((array_agg(k.message_id ORDER BY k.message_id))[1:@examples::int])::bigint[] AS ids
FROM (
    SELECT d.message_id, d.route
    FROM ferry.deliveries AS d
    WHERE d.status = 'delivered' AND d.route = ANY(@routes::text[]) AND d.requests = 0
    UNION
    SELECT d.message_id, d.route
    FROM ferry.deliveries AS d
    JOIN ferry.attempts AS a ON a.message_id = d.message_id AND a.attempt = d.requests
    WHERE d.status = 'delivered' AND d.route = ANY(@routes::text[]) AND a.verdict <> 'delivered'
) AS k
GROUP BY k.route;

-- name: AuditJobs :many
-- Live jobs of which no message exists. A job whose messages were settled and purged while its end was on its way to the
-- database, or its process died, is none of them: it ran a moment ago.
SELECT j.queue AS route, count(*)::bigint AS n, ((array_agg(j.id ORDER BY j.id))[1:@examples::int])::bigint[] AS ids
FROM ferry.river_job AS j
WHERE j.kind = 'forward'
    AND j.state IN ('available', 'pending', 'retryable', 'running', 'scheduled')
    AND (@since::timestamptz IS NULL OR j.created_at >= @since)
    AND NOT EXISTS (
        SELECT
        FROM jsonb_array_elements(CASE WHEN jsonb_typeof(j.args -> 'ids') = 'array' THEN j.args -> 'ids' ELSE '[]' END) AS e (id)
        JOIN ferry.messages AS m ON m.id = CASE WHEN jsonb_typeof(e.id) = 'number' THEN e.id::bigint END
    )
    AND NOT (
        j.attempt > 0
        AND j.attempted_at > now() - interval '5 minutes'
        AND EXISTS (SELECT FROM ferry.purged AS p WHERE p.route = j.queue)
    )
GROUP BY j.queue
ORDER BY j.queue;

-- name: AuditStep :many
-- What tells that Ferry itself moved a position's row: the offset behind the last record before it that is stored, and
-- whether the transaction that wrote the row last is one that added to the ledger of the partition.
SELECT
    COALESCE(max(m."offset") + 1, 0)::bigint AS stored_to,
    COALESCE(bool_or(l.xmin = p.xmin), false)::boolean AS counted
FROM ferry.positions AS p
LEFT JOIN ferry.ledger AS l ON l.topic = p.topic AND l.topic_id = p.topic_id AND l.partition = p.partition
LEFT JOIN LATERAL (
    SELECT x."offset"
    FROM ferry.messages AS x
    WHERE x.route = l.route AND x.topic_id = l.topic_id AND x.partition = l.partition AND x."offset" < p.next_offset
    ORDER BY x."offset" DESC
    LIMIT 1
) AS m ON true
WHERE p."group" = @consumer_group AND p.topic = @topic AND p.partition = @partition;
