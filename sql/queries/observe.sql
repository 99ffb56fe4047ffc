-- Sums and signs of life.

-- name: Counts :many
-- From the sums, never from the history. Conflicts and what could not be stored are failed from the start.
SELECT
    s.route,
    sum(s.stored)::bigint AS stored,
    sum(s.delivered)::bigint AS delivered,
    sum(s.failed)::bigint AS failed
FROM (
    SELECT l.route, l.stored, 0::bigint AS delivered, l.conflicts + l.unstorable AS failed FROM ferry.ledger AS l
    UNION ALL
    SELECT t.route, 0::bigint, t.delivered, t.failed FROM ferry.tallies AS t
) AS s
GROUP BY s.route;

-- name: ForwarderSeen :exec
INSERT INTO ferry.forwarders AS f (id, version, routes, seen_at, rescue_after_ms)
VALUES (@id, @version, @routes, now(), @rescue_after_ms)
ON CONFLICT (id) DO UPDATE
SET version = excluded.version, routes = excluded.routes, seen_at = excluded.seen_at, rescue_after_ms = excluded.rescue_after_ms;

-- name: SynchronousCommit :one
SELECT current_setting('synchronous_commit')::text;
