-- What happened, per conversation, bounded.

-- let: columns
id, conversation_id, seq, kind, turn_id, trace_id, detail, at

-- name: append
-- `seq` counts within the conversation, so that trimming needs no count.
INSERT INTO events (conversation_id, seq, kind, turn_id, trace_id, detail, at)
VALUES (?, 1 + COALESCE((SELECT MAX(seq) FROM events WHERE conversation_id = ?), 0), ?, ?, ?, ?, ?)
RETURNING seq

-- name: trim
DELETE FROM events WHERE conversation_id = ? AND seq <= ?

-- name: overfull
-- Conversations above the bound: it was lowered, or two machines wrote at once.
SELECT conversation_id, MAX(seq) FROM events GROUP BY conversation_id HAVING COUNT(*) > ?

-- name: since
-- Here ids are in commit order, and the first half of a cursor is always 0.
SELECT 0, {columns} FROM events WHERE id > ? AND id > ? ORDER BY id LIMIT ?

-- name: since @postgresql
-- Ids are drawn before they are committed, so a row may appear below one that was read already. Only rows of
-- transactions that are older than every running one are final; in the order (xid, id) none appears in between. The
-- table is named in the order: a bare xid would be the text beside it, of which 1000 comes before 999.
SELECT xid::text, {columns} FROM events
WHERE (xid, id) > (?::text::xid8, ?) AND xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY events.xid, events.id LIMIT ?

-- name: since_in
SELECT 0, {columns} FROM events WHERE conversation_id = ? AND id > ? AND id > ? ORDER BY id LIMIT ?

-- name: since_in @postgresql
SELECT xid::text, {columns} FROM events
WHERE conversation_id = ? AND (xid, id) > (?::text::xid8, ?) AND xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY events.xid, events.id LIMIT ?

-- name: last
-- The newest rows of a conversation, as far as they are committed.
SELECT {columns} FROM events WHERE conversation_id = ? ORDER BY seq DESC, id DESC LIMIT ?
