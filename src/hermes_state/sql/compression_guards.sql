-- Who compresses a session, and what the last attempts came to.

-- name: acquire
-- One statement: make the row, or take it over when it has run out, lies in the future, or is the holder's own.
INSERT INTO compression_locks AS l (session_id, holder, acquired_at, expires_at) VALUES (?, ?, ?, ?)
ON CONFLICT (session_id) DO UPDATE SET
    holder = excluded.holder, acquired_at = excluded.acquired_at, expires_at = excluded.expires_at
WHERE l.holder = excluded.holder OR l.expires_at <= ? OR l.acquired_at > ?

-- name: refresh
-- A lock that has run out stays lost, even if nobody took it meanwhile.
UPDATE compression_locks SET acquired_at = ?, expires_at = ?
WHERE session_id = ? AND holder = ? AND expires_at > ? AND acquired_at <= ?

-- name: release
DELETE FROM compression_locks WHERE session_id = ? AND holder = ?

-- name: holder
SELECT holder FROM compression_locks WHERE session_id = ? AND expires_at > ? AND acquired_at <= ?

-- name: set_cooldown
UPDATE sessions SET compression_failure_cooldown_until = ?, compression_failure_error = ? WHERE id = ?

-- name: cooldown
SELECT compression_failure_cooldown_until, compression_failure_error FROM sessions WHERE id = ?

-- name: streak
SELECT compression_fallback_streak FROM sessions WHERE id = ?

-- name: set_streak
UPDATE sessions SET compression_fallback_streak = ? WHERE id = ?
