-- The read positions in the feeds of platforms.

-- name: get
SELECT value, moved_at FROM platform_cursors WHERE platform = ? AND account = ? AND name = ?

-- name: move
INSERT INTO platform_cursors (platform, account, name, value, moved_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (platform, account, name) DO UPDATE SET value = excluded.value, moved_at = excluded.moved_at

-- name: retire_inbox
UPDATE inbox SET account = ? WHERE platform = ? AND account = ? AND ended_at IS NOT NULL

-- name: retire_outbox
UPDATE outbox SET account = ? WHERE platform = ? AND account = ? AND ended_at IS NOT NULL
