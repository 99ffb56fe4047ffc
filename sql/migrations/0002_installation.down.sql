-- Takes the id of the installation away. A later up makes another one: committed offsets then look like those of
-- another installation, and the ingester says so.
--
-- Locks: ACCESS EXCLUSIVE on the table, for a moment. Stop the ingesters first.

DROP TABLE ferry.installation;
