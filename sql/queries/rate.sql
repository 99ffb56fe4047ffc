-- Rate limits that all forwarders share: one line of times at which requests are due, from which each forwarder leases
-- some (store.Lease).

-- name: Lease :one
-- next_at is when the next request is due. After a pause it lies back, by so much at the most that a burst is due at once.
-- All times come from one look at the clock, made after the row is locked: two forwarders that ask at the same moment wait
-- for each other, and the second one must not stand on a time before the first one's.
--
-- The first one to ask makes a row and gets nothing. A next_at a minute away was set by a clock that has gone back since:
-- nobody may lease that far ahead. A crash may undo the last leases (synchronous_commit), which lasts for less than a
-- second and spares the disk a write for each.
WITH ask AS (
    SELECT
        @route::text AS route, @per_second::float8 AS per_second, @burst::int AS burst, @n::int AS n, @most::int AS most,
        @ahead::float8 AS ahead, @unused_from::timestamptz AS unused_from, @unused_end::timestamptz AS unused_end,
        set_config('synchronous_commit', 'off', true) AS off
)
INSERT INTO ferry.rate_leases AS l (route, next_at)
SELECT a.route, '-infinity'::timestamptz FROM ask AS a
ON CONFLICT (route) DO UPDATE
SET (next_at, leased_at, granted) = (
    SELECT g.start_at + make_interval(secs => g.granted / g.per_second), g.now, g.granted
    FROM (
        SELECT
            s.now, s.start_at, s.per_second,
            CASE WHEN s.start_at <= s.now + make_interval(secs => s.ahead)
                THEN LEAST(s.most, GREATEST(s.n, floor(1.001 + extract(epoch FROM s.now - s.start_at)::float8 * s.per_second)::int))
                ELSE 0
            END AS granted
        FROM (
            SELECT
                c.now, a.per_second, a.n, a.most, a.ahead,
                GREATEST(c.now - make_interval(secs => (a.burst - 1) / a.per_second), CASE
                    WHEN l.next_at = a.unused_end THEN a.unused_from
                    WHEN l.next_at > c.now + interval '1 minute' THEN c.now
                    ELSE l.next_at
                END) AS start_at
            FROM ask AS a, (SELECT clock_timestamp() AS now) AS c
        ) AS s
    ) AS g
)
RETURNING l.next_at, l.leased_at, l.granted;

-- name: LeaseGiveBack :exec
-- Only while nobody has leased what comes behind.
UPDATE ferry.rate_leases AS l
SET next_at = @unused_from::timestamptz
WHERE l.route = @route AND l.next_at = @unused_end::timestamptz;
