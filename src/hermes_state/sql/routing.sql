-- Routes as other tools see them, and the sessions behind a chat.

-- name: drop
DELETE FROM routes WHERE scope = ? AND session_key IN {texts}

-- name: of_chat
-- Newest first. A compressed segment leads to its continuation.
SELECT id, user_id FROM sessions
WHERE source = ? AND chat_id = ?
    AND (CAST(? AS TEXT) IS NULL OR thread_id = ?) AND (CAST(? AS TEXT) IS NULL OR user_id = ?)
    AND session_key IS NOT NULL AND (ended_at IS NULL OR end_reason = 'compression')
ORDER BY started_at DESC, id DESC

-- name: is_live
SELECT 1 FROM sessions WHERE id = ? AND ended_at IS NULL

-- name: newest_per_key
SELECT s.* FROM sessions s JOIN (
    SELECT id, ROW_NUMBER() OVER (PARTITION BY session_key ORDER BY started_at DESC, id DESC) AS position
    FROM sessions
    WHERE session_key IS NOT NULL AND (ended_at IS NULL OR CAST(? AS INTEGER) = 0)
        AND (CAST(? AS TEXT) IS NULL OR source = ?)
) newest ON newest.id = s.id AND newest.position = 1
ORDER BY s.started_at DESC, s.id DESC
