-- Routes, and the moves of whole conversations. Each verb of the ledger is one transaction over these.

-- name: route
SELECT session_id, entry_json, updated_at FROM routes WHERE scope = ? AND session_key = ? {lock}

-- name: point_route
-- The entry is only given when the caller has one; a route that merely moves keeps what it had.
INSERT INTO routes (scope, session_key, session_id, entry_json, updated_at) VALUES (?, ?, ?, COALESCE(?, '{}'), ?)
ON CONFLICT (scope, session_key) DO UPDATE SET
    session_id = excluded.session_id,
    entry_json = COALESCE(?, routes.entry_json),
    updated_at = excluded.updated_at

-- name: move_routes
UPDATE routes SET session_id = ? WHERE session_id = ?

-- name: other_route
SELECT 1 FROM routes WHERE session_id = ? AND NOT (scope = ? AND session_key = ?) LIMIT 1

-- name: drop_route
DELETE FROM routes WHERE scope = ? AND session_key = ?

-- name: close_parent
-- Its title goes on to the continuation, which needs it free.
UPDATE sessions SET ended_at = ?, end_reason = 'compression', title = NULL WHERE id = ?

-- name: rotated
UPDATE conversations SET tip_id = ?, rotations = rotations + 1 WHERE id = ?

-- name: live_head
SELECT max(id) FROM messages WHERE session_id = ? AND active = 1

-- name: owner
SELECT owner_id FROM conversations WHERE id = ?

-- name: set_owner
UPDATE conversations SET owner_id = ? WHERE id = ?

-- name: live_rows
SELECT role, tool_calls, timestamp FROM messages WHERE session_id = ? AND active = 1

-- name: set_copied
UPDATE sessions SET message_count = ?, tool_call_count = ?, last_active = ? WHERE id = ?
