-- The transcript. Order is always by id, never by time.

-- name: bump @sqlite
-- Counters and listing columns of an appended row's session. Changes nothing when the segment was compressed or
-- retired: the caller then finds out why. The first message sets last_active even when it is older than the session.
UPDATE sessions SET
    message_count = message_count + 1,
    tool_call_count = tool_call_count + ?,
    last_active = CASE WHEN message_count = 0 THEN ? ELSE max(last_active, ?) END,
    active_minute = CAST((CASE WHEN message_count = 0 THEN ? ELSE max(last_active, ?) END) / 60 AS INTEGER),
    preview = COALESCE(preview, ?)
WHERE id = ? AND (end_reason IS NULL OR end_reason NOT IN ('compression', 'uncompressed'))

-- name: bump_within @sqlite
-- The same within one minute, the usual case: the index on the minute is not written.
UPDATE sessions SET
    message_count = message_count + 1,
    tool_call_count = tool_call_count + ?,
    last_active = max(last_active, ?),
    preview = COALESCE(preview, ?)
WHERE id = ? AND active_minute = ? AND message_count > 0
    AND (end_reason IS NULL OR end_reason NOT IN ('compression', 'uncompressed'))

-- name: insert
INSERT INTO messages (session_id, {said}) VALUES (?, {said_values})

-- name: append @postgresql
-- `bump` and `insert` in one statement: one round trip, and the session's row is locked before the id is assigned, so
-- ids of one session are in commit order.
WITH bumped AS (
    UPDATE sessions SET
        message_count = message_count + 1,
        tool_call_count = tool_call_count + ?::bigint,
        last_active = CASE WHEN message_count = 0 THEN ?::float8 ELSE GREATEST(last_active, ?::float8) END,
        preview = COALESCE(preview, ?)
    WHERE id = ? AND (end_reason IS NULL OR end_reason NOT IN ('compression', 'uncompressed'))
    RETURNING id
)
INSERT INTO messages (session_id, {said})
SELECT id, {said_typed} FROM bumped RETURNING id

-- name: of_session
SELECT {full}
FROM messages
WHERE session_id = ? AND replaced = 0 AND active >= ?
ORDER BY id LIMIT ? OFFSET ?

-- name: conversation
-- Only the columns of a provider request.
SELECT {shown}
FROM messages
WHERE session_id = ? AND replaced = 0 AND active >= ?
ORDER BY id

-- name: take_back
UPDATE messages SET active = 0 WHERE session_id = ? AND id >= ? AND active = 1

-- name: summarise_all
UPDATE messages SET active = 0, compacted = 1 WHERE session_id = ? AND active = 1

-- name: replace_all
-- Visible to no reader; retention deletes them.
UPDATE messages SET replaced = ?, active = 0 WHERE session_id = ? AND replaced = 0 AND active >= ?

-- name: head
SELECT max(id) FROM messages WHERE session_id = ? AND active = 1

-- name: count_rewind
UPDATE sessions SET rewind_count = rewind_count + 1 WHERE id = ?

-- name: has_platform_id
SELECT 1 FROM messages WHERE session_id = ? AND platform_message_id = ? AND replaced = 0 LIMIT 1

-- name: recent_user
SELECT id, timestamp, content, content_kind FROM messages
WHERE session_id = ? AND role = 'user' AND replaced = 0 AND active >= ? ORDER BY id DESC LIMIT ?

-- name: before
SELECT {full}
FROM messages WHERE session_id = ? AND replaced = 0 AND id < ? ORDER BY id DESC LIMIT ?

-- name: from_on
SELECT {full}
FROM messages WHERE session_id = ? AND replaced = 0 AND id >= ? ORDER BY id LIMIT ?

-- name: newest
SELECT {full}
FROM messages WHERE session_id = ? AND replaced = 0 AND id > ? ORDER BY id DESC LIMIT ?

-- name: count_all
SELECT count(*) FROM messages WHERE replaced = 0

-- name: count_of
SELECT count(*) FROM messages WHERE session_id = ? AND replaced = 0

-- name: copy_live
-- A branch starts as a copy of its origin's visible rows; undoing a compression copies the rows after it.
INSERT INTO messages (session_id, {said})
SELECT ?, {said}
FROM messages WHERE session_id = ? AND active = 1 AND id > ? ORDER BY id

-- name: live_after
SELECT role, tool_calls, timestamp FROM messages WHERE session_id = ? AND active = 1 AND id > ?

-- name: settle_minute @sqlite
-- After last_active was set directly. PostgreSQL derives the minute by itself.
UPDATE sessions SET active_minute = CAST(last_active / 60 AS INTEGER)
WHERE id = ? AND active_minute <> CAST(last_active / 60 AS INTEGER)

-- For a running conversation: whether it knows the current transcript, and the rows added since.

-- name: state
-- The newest live row below an id is found from the end of the index, however long the transcript is.
SELECT s.message_count, COALESCE(s.rewind_count, 0), COALESCE(
    (SELECT m.id FROM messages m WHERE m.session_id = s.id AND m.active = 1 AND m.id < ? ORDER BY m.id DESC LIMIT 1), 0
), CASE WHEN s.end_reason IN ('compression', 'uncompressed') THEN 1 ELSE 0 END
FROM sessions s WHERE s.id = ?

-- name: rows
-- Like `conversation`, with the turn and the id last.
SELECT {shown}, turn_id, id
FROM messages
WHERE session_id = ? AND replaced = 0 AND active = 1 AND id > ?
ORDER BY id

-- name: rows_until
-- Like `rows`, with those that were undone or summarised since.
SELECT {shown}, turn_id, id, active, compacted
FROM messages
WHERE session_id = ? AND replaced = 0 AND id <= ?
ORDER BY id

-- name: of_turn
-- The rows that a turn wrote in one segment; those that a compression copied there have another id.
SELECT {full} FROM messages WHERE session_id = ? AND turn_id = ? AND replaced = 0 ORDER BY id

-- name: said_in_turn
-- Like `rows`: the first user row of a turn. Runs once per watched turn, so reading the segment is fast enough.
SELECT {shown}
FROM messages
WHERE session_id = ? AND turn_id = ? AND role = 'user' AND replaced = 0 AND id > ?
ORDER BY id LIMIT 1
