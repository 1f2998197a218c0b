-- Undo and redo of turns. The content of rows never changes.

-- name: spoken
-- Live user rows, newest first. Overheard messages of a group are no turns.
SELECT id, turn_id FROM messages
WHERE session_id = ? AND role = 'user' AND observed = 0 AND replaced = 0 AND active = 1 ORDER BY id DESC

-- name: content
SELECT content, content_kind FROM messages WHERE id = ?

-- name: from_on
-- Live or not: a range of rows to hide must not include a row that was hidden before.
SELECT id, active FROM messages WHERE session_id = ? AND replaced = 0 AND id >= ? ORDER BY id

-- name: newest
SELECT max(id) FROM messages WHERE session_id = ? AND replaced = 0

-- name: bring_back
UPDATE messages SET active = 1
WHERE session_id = ? AND id BETWEEN ? AND ? AND active = 0 AND compacted = 0 AND replaced = 0
