-- Titles are unique over the whole store, so that a person can name a conversation.

-- name: holder
SELECT id, root_id FROM sessions WHERE title = ?

-- name: get
SELECT title FROM sessions WHERE id = ?

-- name: root_of
SELECT root_id FROM sessions WHERE id = ?

-- name: set
UPDATE sessions SET title = ? WHERE id = ?

-- name: numbered
SELECT id, title, started_at FROM sessions WHERE title LIKE ? ESCAPE '\' ORDER BY started_at DESC, id DESC

-- name: by_title
SELECT * FROM sessions WHERE title = ?
