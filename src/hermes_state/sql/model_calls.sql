-- The model calls of turns.

-- name: add
INSERT INTO model_calls ({columns})
SELECT CAST(? AS TEXT), COALESCE(MAX(number), 0) + 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
FROM model_calls WHERE turn_id = ?

-- name: add @postgresql
INSERT INTO model_calls ({columns})
SELECT ?::text, COALESCE(MAX(number), 0) + 1, ?::bigint, ?::text, ?::text, ?::text, ?::text, ?::text, ?::bigint,
    ?::bigint, ?::bigint, ?::bigint, ?::float8, ?::text, ?::text, ?::float8, ?::float8
FROM model_calls WHERE turn_id = ?

-- name: of_turn
SELECT {columns} FROM model_calls WHERE turn_id = ? ORDER BY number
