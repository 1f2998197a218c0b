-- Checks of a database before it is used, and its schema version.

-- name: tables @sqlite
SELECT name FROM sqlite_master WHERE type = 'table'

-- name: tables @postgresql
SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()

-- name: version
SELECT version FROM schema_version

-- name: first_version
INSERT INTO schema_version (version) VALUES (?)

-- name: set_version
UPDATE schema_version SET version = ?

-- name: lock_version @postgresql
LOCK TABLE schema_version IN EXCLUSIVE MODE

-- name: lock_creation @postgresql
SELECT pg_advisory_xact_lock(7205759403)

-- name: current_schema @postgresql
SELECT current_schema()

-- name: from_another_cluster @postgresql
-- A visible row was written before the snapshot's end, so its transaction number is smaller than that.
SELECT EXISTS (SELECT 1 FROM messages WHERE xid >= pg_snapshot_xmax(pg_current_snapshot()))
    OR EXISTS (SELECT 1 FROM events WHERE xid >= pg_snapshot_xmax(pg_current_snapshot()))

-- name: renumber_messages @postgresql
-- Below every number that a cluster assigns; the rows keep the order of their ids.
UPDATE messages SET xid = '1' WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())

-- name: renumber_events @postgresql
UPDATE events SET xid = '1' WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())
