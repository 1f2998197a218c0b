-- The model calls of turns.

-- name: add
INSERT INTO model_calls ({columns}) VALUES (
    ?, (SELECT COALESCE(MAX(number), 0) + 1 FROM model_calls WHERE turn_id = ?), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
)

-- name: of_turn
SELECT {columns} FROM model_calls WHERE turn_id = ? ORDER BY number
