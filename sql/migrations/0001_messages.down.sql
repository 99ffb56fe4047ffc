-- Takes all of Ferry's own tables away, with what is in them. River's tables stay.
--
-- Locks: ACCESS EXCLUSIVE on each table. Stop both binaries first.

DROP VIEW ferry.message_status;
DROP TABLE ferry.forwarders, ferry.ledger, ferry.positions, ferry.tallies, ferry.attempts, ferry.failures,
    ferry.deliveries, ferry.messages;
ALTER TABLE ferry.river_job RESET (
    autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay
);
