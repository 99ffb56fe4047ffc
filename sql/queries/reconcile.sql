-- Statements of reconcile. deliveries is large and has no index on its status, so each statement goes along a primary key,
-- a batch at a time, and looks up single rows of the other tables: the LIMIT in a LATERAL query keeps the planner from
-- reading a table whole to join it.

-- name: ReconcileLock :one
-- One run at a time; the second waits.
SELECT
    r.seen_to, r.sure_to, r.mark, r.checked, r.failures_checked,
    (r.marked_at < now() - make_interval(secs => @age_seconds::float8))::bool AS ripe
FROM ferry.reconcile AS r
FOR UPDATE;

-- name: ReconcileLook :one
-- Puts pending messages behind an id into unsettled.
WITH w AS (
    SELECT d.message_id, d.status
    FROM ferry.deliveries AS d
    WHERE d.message_id > @after AND d.message_id <= @up_to
    ORDER BY d.message_id
    LIMIT @batch
), added AS (
    INSERT INTO ferry.unsettled (message_id)
    SELECT w.message_id FROM w WHERE w.status = 'pending'
    ON CONFLICT (message_id) DO NOTHING
)
SELECT count(*)::bigint AS looked, COALESCE(max(w.message_id), 0)::bigint AS last FROM w;

-- name: ReconcileLooked :exec
UPDATE ferry.reconcile AS r
SET seen_to = @seen_to, sure_to = @sure_to, mark = @mark,
    marked_at = CASE WHEN r.mark = @mark THEN r.marked_at ELSE now() END;

-- name: ReconcileChecked :exec
UPDATE ferry.reconcile SET checked = @checked, failures_checked = @failures_checked;

-- name: UnsettledCheck :one
-- Looks at unsettled messages behind an id, with the jobs that own them, in one snapshot. What is settled or gone is
-- deleted, unless a replay has made it new meanwhile:
--
--	reconcile's snapshot: message 5 is failed
--	a replay makes 5 pending and adds it to unsettled, where it is already; it commits
--	reconcile deletes it from unsettled → nobody would look at 5 again
--
-- The replay changes added_at, so that the DELETE, which looks at the row anew when it waited for it, leaves it.
WITH w AS (
    SELECT u.message_id, u.added_at
    FROM ferry.unsettled AS u
    WHERE u.message_id > @after
    ORDER BY u.message_id
    LIMIT @batch
), s AS (
    SELECT w.message_id, w.added_at, d.status, d.route, d.job_id, j.state
    FROM w
    LEFT JOIN LATERAL (
        SELECT x.status, x.route, x.job_id FROM ferry.deliveries AS x WHERE x.message_id = w.message_id LIMIT 1
    ) AS d ON true
    LEFT JOIN LATERAL (
        SELECT x.state::text AS state FROM ferry.river_job AS x WHERE x.id = d.job_id LIMIT 1
    ) AS j ON true
), gone AS (
    DELETE FROM ferry.unsettled AS u
    USING s
    WHERE u.message_id = s.message_id
        AND u.added_at = s.added_at
        AND s.status IS DISTINCT FROM 'pending'
        AND u.message_id > @after
        AND u.message_id <= (SELECT max(w.message_id) FROM w)
), o AS (
    SELECT
        s.message_id,
        COALESCE(s.job_id, 0) AS job_id,
        CASE
            WHEN EXISTS (SELECT FROM ferry.failures AS f WHERE f.message_id = s.message_id) THEN 'repaired'
            ELSE COALESCE(s.state, 'missing')
        END AS finding
    FROM s
    WHERE s.status = 'pending'
        AND s.route = ANY(@routes::text[])
        AND COALESCE(s.state, 'missing') IN ('missing', 'cancelled', 'completed', 'discarded')
)
SELECT
    (SELECT count(*) FROM w)::bigint AS looked,
    COALESCE((SELECT max(w.message_id) FROM w), 0)::bigint AS last,
    COALESCE(array_agg(o.message_id ORDER BY o.message_id), '{}')::bigint[] AS message_ids,
    COALESCE(array_agg(o.job_id ORDER BY o.message_id), '{}')::bigint[] AS job_ids,
    COALESCE(array_agg(o.finding ORDER BY o.message_id), '{}')::text[] AS findings
FROM o;

-- name: FailuresCheck :one
-- Rows of failures whose message is not failed: it was repaired by SQL.
WITH w AS (
    SELECT f.message_id
    FROM ferry.failures AS f
    WHERE f.message_id > @after
    ORDER BY f.message_id
    LIMIT @batch
), o AS (
    SELECT w.message_id, COALESCE(d.job_id, 0) AS job_id
    FROM w
    CROSS JOIN LATERAL (
        SELECT x.status, x.route, x.job_id FROM ferry.deliveries AS x WHERE x.message_id = w.message_id LIMIT 1
    ) AS d
    WHERE d.status <> 'failed' AND d.route = ANY(@routes::text[])
)
SELECT
    (SELECT count(*) FROM w)::bigint AS looked,
    COALESCE((SELECT max(w.message_id) FROM w), 0)::bigint AS last,
    COALESCE(array_agg(o.message_id ORDER BY o.message_id), '{}')::bigint[] AS message_ids,
    COALESCE(array_agg(o.job_id ORDER BY o.message_id), '{}')::bigint[] AS job_ids
FROM o;

-- name: JobsLock :many
SELECT j.id, j.state::text AS state FROM ferry.river_job AS j WHERE j.id = ANY(@ids::bigint[]) ORDER BY j.id FOR UPDATE;

-- name: JobsLockCancelled :many
SELECT j.id FROM ferry.river_job AS j WHERE j.id = ANY(@ids::bigint[]) AND j.state = 'cancelled' ORDER BY j.id FOR UPDATE;

-- name: JobsTell :exec
-- Adds an error of Ferry's own to cancelled jobs: River UI shows why, and a later run knows that it was asked for.
UPDATE ferry.river_job AS j
SET errors = array_append(
    j.errors,
    jsonb_build_object('at', now(), 'attempt', greatest(j.attempt, 0), 'error', @error::text, 'trace', '')
)
WHERE j.id = ANY(@ids::bigint[]) AND j.state = 'cancelled';

-- name: DeliveriesUnfailedLock :many
SELECT
    d.message_id, d.route, COALESCE(d.job_id, 0)::bigint AS job_id, d.status, d.next_attempt_at,
    m.message_key, m.in_lane, m.payload_bytes
FROM ferry.deliveries AS d
CROSS JOIN LATERAL (
    SELECT
        x.message_key, (x.lane IS NOT NULL)::bool AS in_lane, COALESCE(octet_length(x.payload), 0)::bigint AS payload_bytes
    FROM ferry.messages AS x
    WHERE x.id = d.message_id
    LIMIT 1
) AS m
WHERE d.message_id = ANY(@message_ids::bigint[]) AND d.status <> 'failed'
ORDER BY d.message_id
FOR UPDATE OF d;

-- name: DeliveriesRestart :exec
UPDATE ferry.deliveries AS d
SET attempts = 0, due_from = now(), dead_lettered_at = NULL
WHERE d.message_id = ANY(@message_ids::bigint[]) AND d.status = 'pending';

-- name: MessagesBrief :many
SELECT m.id, m.route, m.message_key, COALESCE(octet_length(m.payload), 0)::bigint AS payload_bytes
FROM ferry.messages AS m
WHERE m.id = ANY(@ids::bigint[]);

-- name: JobsOwn :many
SELECT j.id FROM ferry.river_job AS j WHERE j.id = ANY(@ids::bigint[]) AND j.args ->> 'own' = 'true';
