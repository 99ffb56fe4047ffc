-- Finding single messages, for people.

-- name: FindByKey :many
-- A key is unique within its route only. The routes come from the ledger, which has each that ever stored anything.
SELECT
    m.id, m.route, m.message_key, m.topic, m.topic_id, m.partition, m."offset", m.received_at,
    COALESCE(d.status, '')::text AS status, d.reason, d.settled_at
FROM (SELECT DISTINCT l.route FROM ferry.ledger AS l) AS r
CROSS JOIN LATERAL (
    SELECT x.id, x.route, x.message_key, x.topic, x.topic_id, x.partition, x."offset", x.received_at
    FROM ferry.messages AS x
    WHERE x.route = r.route AND x.message_key = @message_key
    LIMIT 1
) AS m
LEFT JOIN ferry.deliveries AS d ON d.message_id = m.id
ORDER BY m.route;

-- name: FindByID :many
SELECT
    m.id, m.route, m.message_key, m.topic, m.topic_id, m.partition, m."offset", m.received_at,
    COALESCE(d.status, '')::text AS status, d.reason, d.settled_at
FROM ferry.messages AS m
LEFT JOIN ferry.deliveries AS d ON d.message_id = m.id
WHERE m.id = @id;
