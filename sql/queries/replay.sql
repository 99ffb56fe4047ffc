-- Statements of forwarder replay. What is to be replayed is found a page at a time, in the order of the ids: failed
-- messages along the indexes of failures, delivered ones along the primary key. The transaction that replays a page then
-- locks its messages and looks at them anew (DeliveriesSettledLock).

-- name: ReplayFailed :one
-- Of the next failures of the routes behind an id, those that are to be replayed. Each route has its own walk along the
-- index; only of what comes first of all of them the rest is looked up. A time is looked up only if it matters.
WITH w AS (
    SELECT c.message_id, c.route, c.reason
    FROM unnest(@routes::text[]) AS r (route)
    CROSS JOIN LATERAL (
        SELECT f.message_id, f.route, f.reason
        FROM ferry.failures AS f
        WHERE f.route = r.route
            AND f.message_id > @after
            AND f.message_id <= @up_to
            AND f.reason = ANY(@reasons::text[])
        ORDER BY f.message_id
        LIMIT @looked_at
    ) AS c
    ORDER BY c.message_id
    LIMIT @looked_at
), o AS (
    SELECT w.message_id, w.route, w.reason
    FROM w
    CROSS JOIN LATERAL (
        SELECT x.status, x.settled_at FROM ferry.deliveries AS x WHERE x.message_id = w.message_id LIMIT 1
    ) AS d
    WHERE d.status = 'failed'
        AND d.settled_at <= @settled_to::timestamptz
        AND (
            @any_time::bool
            OR (
                SELECT x.received_at >= @since::timestamptz AND x.received_at < @until::timestamptz
                FROM ferry.messages AS x
                WHERE x.id = w.message_id
                LIMIT 1
            )
        )
)
SELECT
    (SELECT count(*) FROM w)::bigint AS looked,
    COALESCE((SELECT max(w.message_id) FROM w), 0)::bigint AS last,
    COALESCE(array_agg(o.message_id ORDER BY o.message_id), '{}')::bigint[] AS message_ids,
    COALESCE(array_agg(o.route ORDER BY o.message_id), '{}')::text[] AS routes,
    COALESCE(array_agg(o.reason ORDER BY o.message_id), '{}')::text[] AS reasons
FROM o;

-- name: ReplayDelivered :one
-- Of the next messages behind an id, the first ones that are delivered and to be replayed.
WITH w AS (
    SELECT d.message_id, d.route, d.status, d.settled_at
    FROM ferry.deliveries AS d
    WHERE d.message_id > @after AND d.message_id <= @up_to
    ORDER BY d.message_id
    LIMIT @looked_at
), o AS (
    SELECT w.message_id, w.route
    FROM w
    WHERE w.status = 'delivered'
        AND w.route = ANY(@routes::text[])
        AND w.settled_at <= @settled_to::timestamptz
        AND (
            @any_time::bool
            OR (
                SELECT x.received_at >= @since::timestamptz AND x.received_at < @until::timestamptz
                FROM ferry.messages AS x
                WHERE x.id = w.message_id
                LIMIT 1
            )
        )
    ORDER BY w.message_id
    LIMIT @batch
)
SELECT
    (SELECT count(*) FROM w)::bigint AS looked,
    COALESCE((SELECT max(w.message_id) FROM w), 0)::bigint AS last,
    COALESCE(array_agg(o.message_id ORDER BY o.message_id), '{}')::bigint[] AS message_ids,
    COALESCE(array_agg(o.route ORDER BY o.message_id), '{}')::text[] AS routes
FROM o;

-- name: RoutesKnown :many
-- Each route that ever stored anything.
SELECT DISTINCT l.route FROM ferry.ledger AS l ORDER BY l.route;

-- name: ReplaysLock :exec
-- Two that begin at once wait for each other, and so share one row.
LOCK TABLE ferry.replays IN SHARE ROW EXCLUSIVE MODE;

-- name: ReplaysForget :exec
-- What nobody goes on with.
DELETE FROM ferry.replays AS r WHERE r.updated_at < now() - interval '30 days';

-- name: ReplayUnfinished :many
-- The replay to go on with, if there is one.
SELECT r.id, r.started_at, r.updated_at, r.up_to, r.done_to, r.replayed
FROM ferry.replays AS r
WHERE r.filter = @filter AND r.finished_at IS NULL AND r.updated_at > now() - interval '24 hours'
ORDER BY r.id DESC
LIMIT 1;

-- name: ReplaysEnd :exec
-- Nobody goes on with those of this filter.
UPDATE ferry.replays AS r SET finished_at = now() WHERE r.filter = @filter AND r.finished_at IS NULL;

-- name: ReplayBegin :one
-- By the clock and not by the transaction's begin, which may have waited.
INSERT INTO ferry.replays AS r (filter, started_at, up_to)
SELECT @filter, clock_timestamp(), COALESCE(max(m.id), 0) FROM ferry.messages AS m
RETURNING r.id, r.started_at, r.up_to;

-- name: ReplayLock :many
-- One step of a replay at a time. An update, so that it waits for ReplaysLock before it has locked the row, and not after.
UPDATE ferry.replays AS r SET updated_at = now()
WHERE r.id = @id AND r.finished_at IS NULL
RETURNING r.started_at, r.up_to, r.done_to;

-- name: ReplayStep :exec
UPDATE ferry.replays AS r
SET done_to = @done_to, replayed = r.replayed + @replayed::bigint,
    finished_at = CASE WHEN @finished::bool THEN now() END
WHERE r.id = @id;

-- name: ReplayPending :many
-- Why a message is pending, and until when.
SELECT COALESCE(d.job_id, 0)::bigint AS job_id, d.next_attempt_at, COALESCE(j.state::text, '')::text AS state, j.scheduled_at
FROM ferry.deliveries AS d
LEFT JOIN ferry.river_job AS j ON j.id = d.job_id
WHERE d.message_id = @message_id AND d.status = 'pending';
