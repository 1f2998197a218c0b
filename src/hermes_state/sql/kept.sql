-- Data of hermes-agent that an import kept and Hermes does not use; see transfer/kept.py. These tables exist only if
-- there is such data.

-- name: make_columns
-- Unknown columns. They are deleted with their row.
CREATE TABLE IF NOT EXISTS kept_columns (
    session_id TEXT REFERENCES sessions(id) ON DELETE CASCADE,
    message_id BIGINT REFERENCES messages(id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    value TEXT NOT NULL
)

-- name: index_of_sessions
CREATE INDEX IF NOT EXISTS idx_kept_columns_session ON kept_columns(session_id)

-- name: index_of_messages
CREATE INDEX IF NOT EXISTS idx_kept_columns_message ON kept_columns(message_id)

-- name: insert_column
INSERT INTO kept_columns (session_id, message_id, name, value) VALUES (?, ?, ?, ?)

-- name: columns_of_sessions
SELECT session_id, message_id, name, value FROM kept_columns
WHERE session_id IS NOT NULL AND (session_id {by_bytes}, name {by_bytes}) > (?, ?)
ORDER BY session_id {by_bytes}, name {by_bytes} LIMIT ?

-- name: columns_of_messages
SELECT session_id, message_id, name, value FROM kept_columns
WHERE message_id IS NOT NULL AND (message_id, name {by_bytes}) > (?, ?) ORDER BY message_id, name {by_bytes} LIMIT ?

-- name: make_rows
CREATE TABLE kept_rows (
    place BIGINT PRIMARY KEY, table_name TEXT NOT NULL, columns TEXT NOT NULL, row_values TEXT NOT NULL
)

-- name: insert_row
INSERT INTO kept_rows (place, table_name, columns, row_values) VALUES (?, ?, ?, ?)

-- name: rows
SELECT place, table_name, columns, row_values FROM kept_rows WHERE place > ? ORDER BY place LIMIT ?

-- name: plain_tables @sqlite
-- Neither virtual nor without rowids.
SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND wr = 0 AND name NOT LIKE 'sqlite\_%' ESCAPE '\'

-- name: shadow_tables @sqlite
-- The tables in which a virtual table stores its data.
SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'shadow'

-- name: columns_of @sqlite
SELECT name, type FROM pragma_table_info(?) ORDER BY cid

-- name: columns_of @postgresql
SELECT column_name, data_type FROM information_schema.columns
WHERE table_schema = current_schema() AND table_name = ? ORDER BY ordinal_position
