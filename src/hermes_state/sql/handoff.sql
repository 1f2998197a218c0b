-- A session on its way from the terminal to a chat. Each step says which state it starts from.

-- name: request
UPDATE sessions SET handoff_state = 'pending', handoff_platform = ?, handoff_error = NULL
WHERE id = ? AND (handoff_state IS NULL OR handoff_state NOT IN ('pending', 'running'))

-- name: claim
UPDATE sessions SET handoff_state = 'running' WHERE id = ? AND handoff_state = 'pending'

-- name: complete
UPDATE sessions SET handoff_state = 'completed', handoff_error = NULL
WHERE id = ? AND handoff_state IN ('pending', 'running')

-- name: fail
UPDATE sessions SET handoff_state = 'failed', handoff_error = ?
WHERE id = ? AND handoff_state IN ('pending', 'running')

-- name: state
SELECT handoff_state, handoff_platform, handoff_error FROM sessions WHERE id = ?

-- name: pending
SELECT * FROM sessions WHERE handoff_state = 'pending' ORDER BY started_at, id
