-- Takes away what 0003 made. Nothing is lost: limits and reconcile begin anew after a later up.
--
-- Locks: ACCESS EXCLUSIVE on each table, for a moment. Stop the forwarders first.

ALTER TABLE ferry.forwarders DROP COLUMN rescue_after_ms;
DROP TABLE ferry.rate_leases, ferry.unsettled, ferry.reconcile;
