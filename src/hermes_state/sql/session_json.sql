-- Single sessions, out and in.

-- name: row_ids
SELECT id FROM messages WHERE session_id = ? ORDER BY id

-- name: hide
UPDATE messages SET active = 0, compacted = ? WHERE id IN {numbers}

-- name: set_owner
-- Whoever imports it has it.
UPDATE conversations SET owner_id = ? WHERE id IN {texts}
