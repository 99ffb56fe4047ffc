-- Sums and signs of life.

-- name: Counts :many
-- From the sums, never from the history. Conflicts and what could not be stored are failed from the start. What is purged
-- was delivered or failed before, so that it changes nothing of what is pending.
SELECT
    s.route,
    sum(s.stored - s.delivered - s.failed)::bigint AS pending,
    sum(s.delivered - s.purged_delivered)::bigint AS delivered,
    sum(s.failed - s.purged_failed)::bigint AS failed
FROM (
    SELECT
        l.route, l.stored, 0::bigint AS delivered, l.conflicts + l.unstorable AS failed, 0::bigint AS purged_delivered,
        0::bigint AS purged_failed
    FROM ferry.ledger AS l
    UNION ALL
    SELECT t.route, 0, t.delivered, t.failed, 0, 0 FROM ferry.tallies AS t
    UNION ALL
    SELECT p.route, 0, 0, 0, p.delivered, p.failed FROM ferry.purged AS p
) AS s
GROUP BY s.route;

-- name: ForwarderSeen :exec
INSERT INTO ferry.forwarders AS f (id, version, routes, seen_at, rescue_after_ms)
VALUES (@id, @version, @routes, now(), @rescue_after_ms)
ON CONFLICT (id) DO UPDATE
SET version = excluded.version, routes = excluded.routes, seen_at = excluded.seen_at, rescue_after_ms = excluded.rescue_after_ms;

-- name: SynchronousCommit :one
SELECT current_setting('synchronous_commit')::text;
