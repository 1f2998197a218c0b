-- Export and import of single sessions.

-- name: row_ids
SELECT id FROM messages WHERE session_id = ? ORDER BY id

-- name: hide
UPDATE messages SET active = 0, compacted = ? WHERE id IN {numbers}

-- name: set_owner
-- The importing person owns it.
UPDATE conversations SET owner_id = ? WHERE id IN {texts}
