-- One inbound batch, its attempts and its outcome. Every change is made under the fence of the running attempt.

-- name: begin
INSERT INTO turns (id, conversation_id, session_id, route, trace_id, fence, attempt, state, started_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, 1, 'running', ?, ?)

-- name: resume
-- The next attempt, under the fence of the process that recovers it.
UPDATE turns SET attempt = attempt + 1, fence = ?, session_id = ?, updated_at = ?
WHERE id = ? AND state = 'running'
RETURNING {columns}

-- name: done
SELECT COUNT(*) FROM turns WHERE conversation_id = ? AND state = 'done'

-- name: times_left
SELECT kind, COUNT(*) FROM events
WHERE conversation_id = ? AND turn_id = ? AND kind IN ('turn.left', 'turn.waiting', 'turn.accompanied')
GROUP BY kind

-- name: wait
-- Nobody works on it until its question is answered.
UPDATE turns SET state = 'waiting', reason = ?, session_id = ?, updated_at = ? WHERE id = ?

-- name: wake
UPDATE turns SET state = 'running', reason = NULL, attempt = attempt + 1, fence = ?, session_id = ?, updated_at = ?
WHERE id = ? AND state = 'waiting'
RETURNING {columns}

-- name: waiting
SELECT {columns} FROM turns WHERE state = 'waiting' AND (CAST(? AS TEXT) IS NULL OR conversation_id = ?)
ORDER BY started_at, id

-- name: answered
-- Of the few turns that wait; the reason of such a turn is the id of its question.
SELECT t.id, a.state FROM turns t JOIN approvals a ON a.id = t.reason JOIN sessions s ON s.id = t.session_id
WHERE t.state = 'waiting' AND (a.state <> 'pending' OR s.ended_at IS NOT NULL)

-- name: note
UPDATE turns SET progress = ?, updated_at = ? WHERE id = ?

-- name: last_note
SELECT progress FROM turns WHERE conversation_id = ? AND progress IS NOT NULL ORDER BY started_at DESC, id DESC LIMIT 1

-- name: ask_to_stop
-- A running turn has no reason yet: a reason is another process's request to stop.
UPDATE turns SET reason = ?, updated_at = ? WHERE id = ? AND state = 'running'

-- name: asked_to_stop
SELECT {columns} FROM turns WHERE state = 'running' AND reason IS NOT NULL ORDER BY started_at, id

-- name: end
UPDATE turns SET state = ?, reason = ?, session_id = ?, updated_at = ?, ended_at = ?, progress = COALESCE(?, progress)
WHERE id = ?

-- name: get
SELECT {columns} FROM turns WHERE id = ?

-- name: beginning
SELECT {columns} FROM turns WHERE id >= ? AND id < ? ORDER BY id LIMIT 2

-- name: running
-- Of one conversation, newest first. Few turns run at any time, while a conversation may have thousands: the expression
-- makes the planner use the index of running turns.
SELECT {columns} FROM turns WHERE state = 'running' AND conversation_id || '' = ? ORDER BY started_at DESC, id DESC

-- name: all_running
SELECT {columns} FROM turns WHERE state = 'running' ORDER BY started_at, id

-- name: list
SELECT {columns} FROM turns
WHERE (CAST(? AS TEXT) IS NULL OR state = ?) AND (CAST(? AS TEXT) IS NULL OR conversation_id = ?)
ORDER BY started_at DESC, id DESC LIMIT ? OFFSET ?

-- name: of_trace
SELECT {columns} FROM turns WHERE trace_id = ? ORDER BY started_at, id

-- name: last_ended
SELECT {columns} FROM turns WHERE conversation_id = ? AND ended_at IS NOT NULL
ORDER BY started_at DESC, id DESC LIMIT ?

-- name: counts
SELECT state, COUNT(*) FROM turns GROUP BY state

-- name: prune
-- Rows that still name the turn are removed first: erasing a conversation finds them through it.
DELETE FROM turns WHERE id IN (
    SELECT t.id FROM turns t
    WHERE t.ended_at < ?
        AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.turn_id = t.id)
        AND NOT EXISTS (SELECT 1 FROM effects e WHERE e.turn_id = t.id)
    LIMIT ?
)
