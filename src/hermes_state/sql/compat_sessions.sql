-- Session rows as plug-ins change and find them.

-- name: set_model
UPDATE sessions SET model = ? WHERE id = ?

-- name: set_meta
UPDATE sessions SET model_config = ?, model = COALESCE(?, model) WHERE id = ?

-- name: set_peer
UPDATE sessions SET source = ?, user_id = ?, session_key = ?, chat_id = ?, chat_type = ?, thread_id = ?,
    display_name = COALESCE(?, display_name), origin_json = COALESCE(?, origin_json)
WHERE id = ?

-- name: by_id_part
SELECT t.* FROM sessions t WHERE t.id LIKE ? ESCAPE '\' ORDER BY t.last_active DESC, t.id DESC LIMIT ?

-- name: if_empty
SELECT s.id FROM sessions s
WHERE s.id = ? AND s.title IS NULL
    AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id AND m.replaced = 0)
    AND NOT EXISTS (SELECT 1 FROM sessions c WHERE c.parent_session_id = s.id)
