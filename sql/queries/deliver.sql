-- Statements of the forwarder: loading, and the settling transaction (store.Settle), in its order.

-- name: MessagesLoad :many
SELECT
    clock_timestamp()::timestamptz AS now,
    m.id, m.route, m.message_key, m.topic, m.topic_id, m.partition, m."offset", m.kafka_key, m.headers, m.payload,
    m.produced_at, m.received_at,
    d.job_id, d.status, d.reason, d.detail, d.attempts, d.requests, d.due_from, d.next_attempt_at, d.key_revision
FROM ferry.messages AS m
JOIN ferry.deliveries AS d ON d.message_id = m.id
WHERE m.id = ANY(@ids::bigint[]);

-- name: Now :one
SELECT clock_timestamp()::timestamptz AS now;

-- name: DeliveriesLock :many
-- The fence for messages that leave their group: those that the job still owns and nobody has settled, locked in order.
SELECT d.message_id
FROM ferry.deliveries AS d
JOIN (
    SELECT unnest(@message_ids::bigint[]) AS message_id, unnest(@job_ids::bigint[]) AS job_id
) AS o ON d.message_id = o.message_id AND d.job_id = o.job_id
WHERE d.status = 'pending'
ORDER BY d.message_id
FOR UPDATE OF d;

-- name: DeliveriesSettle :many
-- The fence: only what the job still owns and nobody has settled. Without a request, what the last one left stays.
-- A message that fails again has no dead letter of this failure yet.
UPDATE ferry.deliveries AS d
SET job_id = COALESCE(NULLIF(o.new_job_id, 0), d.job_id),
    status = o.status,
    reason = NULLIF(o.reason, ''),
    detail = NULLIF(o.detail, ''),
    attempts = d.attempts + o.counted::int,
    requests = d.requests + o.requested::int,
    http_status = CASE WHEN o.requested THEN NULLIF(o.http_status, 0) ELSE d.http_status END,
    error_code = CASE WHEN o.requested THEN NULLIF(o.error_code, '') ELSE d.error_code END,
    error = CASE WHEN o.requested THEN NULLIF(o.error, '') ELSE d.error END,
    next_attempt_at = o.next_attempt_at,
    settled_at = CASE WHEN o.status <> 'pending' THEN now() END,
    dead_lettered_at = CASE WHEN o.status <> 'failed' THEN d.dead_lettered_at END
FROM (
    SELECT
        unnest(@message_ids::bigint[]) AS message_id,
        unnest(@job_ids::bigint[]) AS job_id,
        unnest(@new_job_ids::bigint[]) AS new_job_id,
        unnest(@statuses::text[]) AS status,
        unnest(@reasons::text[]) AS reason,
        unnest(@details::text[]) AS detail,
        unnest(@counted::bool[]) AS counted,
        unnest(@requested::bool[]) AS requested,
        unnest(@http_statuses::int[]) AS http_status,
        unnest(@error_codes::text[]) AS error_code,
        unnest(@errors::text[]) AS error,
        unnest(@next_attempt_ats::timestamptz[]) AS next_attempt_at
) AS o
WHERE d.message_id = o.message_id AND d.job_id = o.job_id AND d.status = 'pending'
RETURNING d.message_id, d.requests;

-- name: DeliveriesMoveJob :exec
UPDATE ferry.deliveries AS d
SET job_id = n.job_id
FROM (
    SELECT unnest(@message_ids::bigint[]) AS message_id, unnest(@job_ids::bigint[]) AS job_id
) AS n
WHERE d.message_id = n.message_id;

-- name: AttemptsInsert :exec
INSERT INTO ferry.attempts (
    message_id, attempt, counted, started_at, duration_ms, verdict, http_status, error_code, error, response,
    next_attempt_at, forwarder
)
SELECT
    unnest(@message_ids::bigint[]),
    unnest(@attempts::int[]),
    unnest(@counted::bool[]),
    unnest(@started_ats::timestamptz[]),
    unnest(@duration_mss::int[]),
    unnest(@verdicts::text[]),
    NULLIF(unnest(@http_statuses::int[]), 0),
    NULLIF(unnest(@error_codes::text[]), ''),
    NULLIF(unnest(@errors::text[]), ''),
    NULLIF(unnest(@responses::text[]), ''),
    unnest(@next_attempt_ats::timestamptz[]),
    unnest(@forwarders::text[]);

-- name: FailuresInsert :exec
INSERT INTO ferry.failures AS f (message_id, route, reason, error_code, http_status)
SELECT d.message_id, d.route, d.reason, d.error_code, d.http_status
FROM ferry.deliveries AS d
WHERE d.message_id = ANY(@message_ids::bigint[])
ON CONFLICT (message_id) DO UPDATE
SET reason = excluded.reason, error_code = excluded.error_code, http_status = excluded.http_status, failed_at = now();

-- name: TalliesAdd :exec
-- The last statement of a settling transaction: the rows are hot, and locked until it commits. In the order of the
-- primary key, so that two transactions never wait for each other crosswise.
INSERT INTO ferry.tallies AS t (slot, route, delivered, failed)
SELECT i.slot, i.route, i.delivered, i.failed
FROM (
    SELECT
        unnest(@slots::smallint[]) AS slot,
        unnest(@routes::text[]) AS route,
        unnest(@delivered::bigint[]) AS delivered,
        unnest(@failed::bigint[]) AS failed
) AS i
ORDER BY i.slot, i.route
ON CONFLICT (slot, route) DO UPDATE
SET delivered = t.delivered + excluded.delivered, failed = t.failed + excluded.failed;

-- name: GroupPending :many
-- The messages of a group's job that it still owns, locked in order.
SELECT d.message_id, d.route, m.message_key, COALESCE(octet_length(m.payload), 0)::bigint AS payload_bytes
FROM ferry.deliveries AS d
JOIN ferry.messages AS m ON m.id = d.message_id
WHERE d.message_id = ANY(
        ARRAY(
            SELECT jsonb_array_elements_text(j.args -> 'ids')::bigint
            FROM ferry.river_job AS j
            WHERE j.id = @job_id
        )
    )
    AND d.job_id = @job_id
    AND d.status = 'pending'
ORDER BY d.message_id
FOR UPDATE OF d;

-- name: DeliveriesSettledLock :many
-- The fence of a replay: settled messages, locked in order, with what their new jobs need.
SELECT
    d.message_id, d.route, COALESCE(d.job_id, 0)::bigint AS job_id, COALESCE(d.reason, '')::text AS reason,
    m.message_key, m.payload_bytes
FROM ferry.deliveries AS d
CROSS JOIN LATERAL (
    SELECT x.message_key, COALESCE(octet_length(x.payload), 0)::bigint AS payload_bytes
    FROM ferry.messages AS x
    WHERE x.id = d.message_id
    LIMIT 1
) AS m
WHERE d.message_id = ANY(@message_ids::bigint[]) AND d.status = @status AND d.settled_at <= @settled_to::timestamptz
ORDER BY d.message_id
FOR UPDATE OF d;

-- name: DeliveriesReopen :many
-- Of settled messages that are locked: pending, as if they had never been sent, each with the job that owns it now.
UPDATE ferry.deliveries AS d
SET job_id = n.job_id, status = 'pending', reason = NULL, detail = NULL, attempts = 0, due_from = clock_timestamp(),
    next_attempt_at = NULL, settled_at = NULL, dead_lettered_at = NULL,
    key_revision = d.key_revision + CASE WHEN @new_key::bool THEN 1 ELSE 0 END
FROM (
    SELECT unnest(@message_ids::bigint[]) AS message_id, unnest(@job_ids::bigint[]) AS job_id
) AS n
WHERE d.message_id = n.message_id
RETURNING d.message_id, d.due_from;

-- name: FailuresForget :many
DELETE FROM ferry.failures AS f WHERE f.message_id = ANY(@message_ids::bigint[]) RETURNING f.message_id, f.route;

-- name: UnsettledAdd :exec
-- What is there already becomes new: see UnsettledCheck.
INSERT INTO ferry.unsettled AS u (message_id)
SELECT DISTINCT i.message_id FROM unnest(@message_ids::bigint[]) AS i (message_id) ORDER BY i.message_id
ON CONFLICT (message_id) DO UPDATE SET added_at = clock_timestamp();

-- name: RescueTimes :one
-- The longest time that one of the runners says it may run a job, and the shortest of all forwarders that were there then.
SELECT
    clock_timestamp()::timestamptz AS now,
    COALESCE(max(f.rescue_after_ms) FILTER (WHERE f.id = ANY(@runners::text[])), 0)::bigint AS longest,
    COALESCE(min(COALESCE(f.rescue_after_ms, 0)) FILTER (WHERE f.seen_at > @since::timestamptz), 0)::bigint AS shortest
FROM ferry.forwarders AS f;
