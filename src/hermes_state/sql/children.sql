-- Child conversations: who delegated what, how it ended, and how the results reached the parent.

-- name: add
INSERT INTO children (conversation_id, parent_id, turn_id, call_id, position, depth, inbox_id, goal, spec, budget_usd, state, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending', ?)

-- name: get
SELECT {columns} FROM children WHERE conversation_id = ?

-- name: of_call
SELECT {columns} FROM children WHERE turn_id = ? AND call_id = ? ORDER BY position

-- name: of_turn
SELECT {columns} FROM children WHERE turn_id = ? ORDER BY created_at, call_id, position

-- name: of_parent
SELECT {columns} FROM children WHERE parent_id = ? ORDER BY created_at DESC, call_id, position LIMIT ?

-- name: open_count
SELECT count(*) FROM children WHERE parent_id = ? AND state IN ('pending', 'running')

-- name: open
-- Everything that is not over: children at work, and results that have not reached their parent. Its condition is the
-- index's.
SELECT {columns} FROM children WHERE state IN ('pending', 'running') OR returned IS NULL OR returned = 'later'
ORDER BY created_at, turn_id, call_id, position LIMIT ?

-- name: begin
UPDATE children SET state = 'running', started_at = ? WHERE conversation_id = ? AND state = 'pending' RETURNING {columns}

-- name: end
UPDATE children SET state = ?, result = ?, ended_at = ? WHERE conversation_id = ? AND state IN ('pending', 'running')

-- name: set_returned
UPDATE children SET returned = ? WHERE turn_id = ? AND call_id = ? AND (returned IS NULL OR returned = 'later')

-- name: turn_state
SELECT state FROM turns WHERE id = ?

-- name: running_turn
SELECT id FROM turns WHERE conversation_id = ? AND state = 'running' ORDER BY started_at LIMIT 1

-- name: prune
-- A child's own conversation stays; only how it came about is forgotten.
DELETE FROM children WHERE conversation_id IN (
    SELECT conversation_id FROM children
    WHERE ended_at < ? AND returned IS NOT NULL AND returned <> 'later' LIMIT ?
)
