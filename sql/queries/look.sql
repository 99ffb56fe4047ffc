-- Looking at messages, for people: show and list. The statement that list puts together is in internal/store/list_sql.go.

-- name: PartitionsStored :many
-- The partitions of a topic that messages came from, under each id that the topic had.
SELECT l.route, l.topic_id, l.partition
FROM ferry.ledger AS l
WHERE l.topic = @topic
    AND (cardinality(@routes::text[]) = 0 OR l.route = ANY(@routes::text[]))
    AND (@partition::int < 0 OR l.partition = @partition::int);

-- name: PendingBounds :one
-- Up to sure_to, every pending message is in unsettled: reconcile has looked at all of them after the transactions that
-- stored them had ended. What is above has to be looked at.
SELECT r.sure_to FROM ferry.reconcile AS r;

-- name: LookMessage :one
-- What message_status does not have.
SELECT
    clock_timestamp()::timestamptz AS now,
    m.topic_id, m.kafka_key, m.headers, m.payload, m.payload_sha256,
    COALESCE(d.job_id, 0)::bigint AS job_id, COALESCE(d.requests, 0)::int AS requests,
    COALESCE(d.key_revision, 0)::int AS key_revision, d.due_from, d.dead_lettered_at
FROM ferry.messages AS m
LEFT JOIN ferry.deliveries AS d ON d.message_id = m.id
WHERE m.id = @id;

-- name: LookAttempts :many
-- Partitions of the days before the message was stored are not looked at.
SELECT
    a.attempt, a.started_at, a.duration_ms, a.verdict, a.counted, a.http_status, a.error_code, a.error, a.response,
    a.next_attempt_at, a.forwarder
FROM ferry.attempts AS a
WHERE a.message_id = @message_id AND a.started_at >= @since::timestamptz
ORDER BY a.attempt, a.started_at;

-- name: LookJob :one
SELECT
    j.id, j.kind, j.state::text AS state, j.queue, j.attempt, j.scheduled_at,
    CASE jsonb_typeof(j.args -> 'ids') WHEN 'array' THEN jsonb_array_length(j.args -> 'ids') ELSE 0 END::int AS messages,
    COALESCE(j.errors[array_upper(j.errors, 1)] ->> 'error', '')::text AS last_error
FROM ferry.river_job AS j
WHERE j.id = @id;

-- name: ForwardersOf :one
-- How many forwarders that work a route have shown a sign of life lately.
SELECT count(*)::bigint AS n
FROM ferry.forwarders AS f
WHERE @route::text = ANY(f.routes) AND f.seen_at > clock_timestamp() - make_interval(secs => @age_seconds::float8);

-- name: LookConflicts :many
-- Messages whose keys lie in a range.
SELECT m.id, m.message_key
FROM ferry.messages AS m
WHERE m.route = @route AND m.message_key >= @first::text AND m.message_key < @last::text
ORDER BY m.message_key
LIMIT @most;
