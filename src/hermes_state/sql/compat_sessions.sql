-- Session rows as plug-ins change and find them.

-- name: by_id_part
SELECT t.* FROM sessions t WHERE t.id LIKE ? ESCAPE '\' ORDER BY t.last_active DESC, t.id DESC LIMIT ?

-- name: if_empty
SELECT s.id FROM sessions s
WHERE s.id = ? AND s.title IS NULL
    AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id AND m.replaced = 0)
    AND NOT EXISTS (SELECT 1 FROM sessions c WHERE c.parent_session_id = s.id)

-- name: acquire_lock
-- One statement: create the row, or take it over when it has expired, lies in the future, or is the holder's own.
INSERT INTO compression_locks AS l (session_id, holder, acquired_at, expires_at) VALUES (?, ?, ?, ?)
ON CONFLICT (session_id) DO UPDATE SET
    holder = excluded.holder, acquired_at = excluded.acquired_at, expires_at = excluded.expires_at
WHERE l.holder = excluded.holder OR l.expires_at <= ? OR l.acquired_at > ?

-- name: refresh_lock
-- An expired lock stays lost, even if nobody took it meanwhile.
UPDATE compression_locks SET acquired_at = ?, expires_at = ?
WHERE session_id = ? AND holder = ? AND expires_at > ? AND acquired_at <= ?

-- name: release_lock
DELETE FROM compression_locks WHERE session_id = ? AND holder = ?

-- name: holder_lock
SELECT holder FROM compression_locks WHERE session_id = ? AND expires_at > ? AND acquired_at <= ?
