-- Statements of ingester skip, which moves a position forward without reading.

-- name: PositionLock :many
-- Waits for the transaction of an ingester, and keeps the next one waiting.
SELECT p.topic_id, p.next_offset
FROM ferry.positions AS p
WHERE p."group" = @consumer_group AND p.topic = @topic AND p.partition = @partition
FOR UPDATE;

-- name: PositionSkip :exec
-- Of a row that is locked.
UPDATE ferry.positions AS p
SET
    topic_id = @topic_id,
    next_offset = @next_offset,
    skipped = p.skipped + @skipped::bigint,
    updated_at = now()
WHERE p."group" = @consumer_group AND p.topic = @topic AND p.partition = @partition;
