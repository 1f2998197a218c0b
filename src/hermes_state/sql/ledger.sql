-- Routes and whole conversations. Each verb of the ledger is one transaction of these statements.

-- name: rotated
UPDATE conversations SET tip_id = ?, rotations = rotations + ? WHERE id = ?

-- name: owner
SELECT owner_id FROM conversations WHERE id = ?

-- name: carried
-- The rows that a compression wrote to its child: their number, and the last of them.
SELECT count(*), COALESCE(max(id), 0) FROM messages WHERE session_id = ? AND active = 1 AND id <= ?

-- name: set_aside_messages
UPDATE messages SET active = 0 WHERE session_id = ? AND active = 1

-- name: forget_carried
DELETE FROM state_meta WHERE key = ?
