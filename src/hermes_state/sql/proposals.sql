-- Changes of skills and memory that wait for a person's yes.

-- name: add
INSERT INTO proposals (id, kind, file, before, after, why, origin, person_id, conversation_id, state, shown, made_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'open', ?, ?)

-- name: get
SELECT {columns} FROM proposals WHERE id = ?

-- name: list
SELECT {columns} FROM proposals WHERE (? = '' OR state = ?) AND (? = '' OR person_id = ?)
ORDER BY made_at DESC, id LIMIT ?

-- name: same
-- An open proposal that would make the same file the same.
SELECT {columns} FROM proposals WHERE kind = ? AND file = ? AND person_id = ? AND state = 'open'

-- name: unshown
SELECT {columns} FROM proposals WHERE shown = 0 AND state = 'open' ORDER BY made_at LIMIT ?

-- name: show
UPDATE proposals SET shown = 1 WHERE id = ?

-- name: decide
UPDATE proposals SET state = ?, decided_by = ?, decided_at = ? WHERE id = ? AND state = ?

-- name: reword
UPDATE proposals SET after = ? WHERE id = ? AND state = 'open'

-- name: prune
DELETE FROM proposals WHERE id IN (SELECT id FROM proposals WHERE made_at < ? LIMIT ?)
