-- The transcript. Order is always by id, never by time.

-- name: bump @sqlite
-- Counters and listing columns of the session an appended row belongs to. Touches nothing when the segment was
-- compressed or set aside: the caller then looks why. The first message sets last_active even when it is older than
-- the session.
UPDATE sessions SET
    message_count = message_count + 1,
    tool_call_count = tool_call_count + ?,
    last_active = CASE WHEN message_count = 0 THEN ? ELSE max(last_active, ?) END,
    active_minute = CAST((CASE WHEN message_count = 0 THEN ? ELSE max(last_active, ?) END) / 60 AS INTEGER),
    preview = COALESCE(preview, ?)
WHERE id = ? AND (end_reason IS NULL OR end_reason NOT IN ('compression', 'uncompressed'))

-- name: bump_within @sqlite
-- The same while the minute stays what it is, which it mostly does: the index over it is not written to.
UPDATE sessions SET
    message_count = message_count + 1,
    tool_call_count = tool_call_count + ?,
    last_active = max(last_active, ?),
    preview = COALESCE(preview, ?)
WHERE id = ? AND active_minute = ? AND message_count > 0
    AND (end_reason IS NULL OR end_reason NOT IN ('compression', 'uncompressed'))

-- name: insert
INSERT INTO messages (session_id, {said}) VALUES (?, {said_values})

-- name: insert_one @sqlite
INSERT INTO messages (session_id, {said}) VALUES (?, {said_values}) RETURNING id

-- name: append @postgresql
-- `bump` and `insert` in one statement: one round trip, and the session's row lock is taken before the id is drawn,
-- so ids of one session are in commit order.
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
-- Only the columns a provider request is made of.
SELECT {shown}
FROM messages
WHERE session_id = ? AND replaced = 0 AND active >= ?
ORDER BY id

-- name: take_back
UPDATE messages SET active = 0 WHERE session_id = ? AND id >= ? AND active = 1

-- name: summarise_all
UPDATE messages SET active = 0, compacted = 1 WHERE session_id = ? AND active = 1

-- name: replace_all
-- Visible to no reader any more; retention removes them for good.
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
-- A branch starts as a copy of what its origin shows; a compression that is undone brings what was said after it.
INSERT INTO messages (session_id, {said})
SELECT ?, {said}
FROM messages WHERE session_id = ? AND active = 1 AND id > ? AND id <= ? ORDER BY id

-- name: live_after
SELECT role, tool_calls, timestamp FROM messages WHERE session_id = ? AND active = 1 AND id > ?

-- name: settle_minute @sqlite
-- After last_active was set outright. PostgreSQL derives the minute by itself.
UPDATE sessions SET active_minute = CAST(last_active / 60 AS INTEGER)
WHERE id = ? AND active_minute <> CAST(last_active / 60 AS INTEGER)

-- What a running conversation asks the store: is the transcript still the one I know, and what was added?

-- name: state
-- The newest live row below an id is found from the end of the index, however long the transcript is.
SELECT s.message_count, COALESCE(s.rewind_count, 0), COALESCE(
    (SELECT m.id FROM messages m WHERE m.session_id = s.id AND m.active = 1 AND m.id < ? ORDER BY m.id DESC LIMIT 1), 0
), CASE WHEN s.end_reason IN ('compression', 'uncompressed') THEN 1 ELSE 0 END
FROM sessions s WHERE s.id = ?

-- name: rows
-- As `conversation`, with the turn and the id last.
SELECT {shown}, turn_id, id
FROM messages
WHERE session_id = ? AND replaced = 0 AND active = 1 AND id > ?
ORDER BY id

-- name: said_in_turn
-- As `rows`: what was said to a turn first. Once for a turn that somebody looks at, so a walk over the segment will do.
SELECT {shown}
FROM messages
WHERE session_id = ? AND turn_id = ? AND role = 'user' AND replaced = 0 AND id > ?
ORDER BY id LIMIT 1
