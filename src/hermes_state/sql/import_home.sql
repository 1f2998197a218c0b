-- Homes of hermes-agent. The `source_…` statements run on their file (always SQLite, read-only); {columns} and {table}
-- are quoted names from the file's own schema. The others run on our store.

-- name: source_tables
-- Shadow tables of full-text indexes and SQLite's own are not data.
SELECT name FROM sqlite_master
WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' AND sql NOT LIKE 'CREATE VIRTUAL%'
ORDER BY name

-- name: source_indexes
SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL%' ORDER BY name

-- name: source_columns
SELECT name, type FROM pragma_table_info(?) ORDER BY cid

-- name: source_version
SELECT max(version) FROM schema_version

-- name: source_rows
SELECT {columns} FROM {table}

-- name: source_count
SELECT count(*) FROM {table}

-- name: source_messages
-- Always sorted by id.
SELECT {columns} FROM messages WHERE id > ? ORDER BY id LIMIT ?

-- name: source_messages_of
SELECT {columns} FROM messages WHERE session_id = ? ORDER BY id

-- name: source_activity
SELECT session_id, count(*), max(timestamp) FROM messages GROUP BY session_id

-- name: source_range
SELECT count(*), min(id), max(id) FROM messages

-- name: source_first_user
-- The message that a list shows: the first by time, then by id. Ids first, so that no long text is sorted.
SELECT m.session_id, m.content FROM messages m JOIN (
    SELECT id, ROW_NUMBER() OVER (PARTITION BY session_id ORDER BY timestamp, id) AS position
    FROM messages WHERE role = 'user' AND content IS NOT NULL
) f ON f.id = m.id WHERE f.position = 1

-- name: taken_titles
SELECT title FROM sessions WHERE title IN {texts}

-- name: parents
SELECT id, root_id, end_reason FROM sessions WHERE id IN {texts}

-- name: highest_message_id
-- The highest id ever used, not the highest present: the search index follows it.
SELECT max(high) FROM (
    SELECT COALESCE(max(id), 0) AS high FROM messages
    UNION ALL SELECT seq FROM sqlite_sequence WHERE name = 'messages'
) AS both_of_them

-- name: highest_message_id @postgresql
SELECT GREATEST(
    COALESCE((SELECT max(id) FROM messages), 0),
    COALESCE(pg_sequence_last_value(pg_get_serial_sequence('messages', 'id')::regclass), 0)
)

-- name: reserve_message_ids @postgresql
-- Explicit ids do not advance the sequence. SQLite's advances by itself.
SELECT setval(pg_get_serial_sequence('messages', 'id'), GREATEST(?::bigint, 1))

-- name: stored_messages
-- In the order of `row_mapping.INSERTED`, for comparison with the source.
SELECT id, session_id, active, compacted, {said} FROM messages WHERE id BETWEEN ? AND ? ORDER BY id

-- name: said_in
SELECT role, content, content_kind FROM messages WHERE session_id = ? AND replaced = 0 ORDER BY id

-- name: make_table @sqlite
-- A table that Hermes does not use, under its own name and columns, without constraints.
CREATE TABLE {table} ({columns})

-- name: fill_table @sqlite
INSERT INTO {table} VALUES ({columns})

-- name: count_homeless
SELECT count(*) FROM sessions s WHERE NOT EXISTS (SELECT 1 FROM conversations c WHERE c.id = s.root_id)

-- name: count_tipless
SELECT count(*) FROM conversations c WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = c.tip_id)
