-- Marks around the effects of tools.

-- let: columns
turn_id, call_id, tool, attempt, started_at, finished_at, result

-- name: start
-- A call starts only once.
INSERT INTO effects (turn_id, call_id, tool, attempt, started_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (turn_id, call_id) DO NOTHING

-- name: get
SELECT {columns} FROM effects WHERE turn_id = ? AND call_id = ?

-- name: finish
UPDATE effects SET finished_at = ?, result = ? WHERE turn_id = ? AND call_id = ? AND finished_at IS NULL

-- name: open
SELECT {columns} FROM effects WHERE turn_id = ? AND finished_at IS NULL ORDER BY started_at, call_id

-- name: of_turn
SELECT {columns} FROM effects WHERE turn_id = ? ORDER BY started_at, call_id

-- name: prune
-- Never of a running turn: its marks keep an effect from happening twice.
DELETE FROM effects WHERE (turn_id, call_id) IN (
    SELECT e.turn_id, e.call_id FROM effects e
    WHERE e.started_at < ? AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.id = e.turn_id AND t.state IN ('running', 'waiting'))
    LIMIT ?
)
