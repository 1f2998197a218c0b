-- Checks of a SQLite file before it is trusted.

-- name: schema @sqlite
SELECT type, name, sql FROM sqlite_schema

-- name: tables @sqlite
SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name

-- name: columns @sqlite
SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?)

-- name: links_of @sqlite
SELECT * FROM pragma_foreign_key_list(?)

-- name: broken_links @sqlite
PRAGMA foreign_key_check

-- name: empty_live @sqlite
DELETE FROM live_views

-- name: sound @sqlite
PRAGMA integrity_check
