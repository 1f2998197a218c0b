-- Letting people in and keeping them out by hand, and the codes of their requests.

-- let: request
platform, account, native_id, display_name, requested_at, expires_at

-- name: guard
-- There is always a row to lock: two processes that count wrong codes at once count both.
INSERT INTO pairing_guards (platform, failures, failed_at) VALUES (?, 0, 0) ON CONFLICT (platform) DO NOTHING

-- name: guarded
SELECT failures, failed_at, locked_until FROM pairing_guards WHERE platform = ?

-- name: set_guard
UPDATE pairing_guards SET failures = ?, failed_at = ?, locked_until = ? WHERE platform = ?

-- name: asked_at
SELECT requested_at FROM pairing_requests WHERE platform = ? AND account = ? AND native_id = ?

-- name: end_oldest
-- Make all but the newest codes of a platform invalid; their rows still make their people wait.
UPDATE pairing_requests SET expires_at = ? WHERE platform = ? AND expires_at > ? AND (account, native_id) NOT IN (
    SELECT account, native_id FROM pairing_requests WHERE platform = ? AND expires_at > ?
    ORDER BY CASE WHEN account = ? AND native_id = ? THEN 0 ELSE 1 END, requested_at DESC, account, native_id LIMIT ?
)

-- name: forget
-- A finished request is kept while it still makes its person wait.
DELETE FROM pairing_requests WHERE platform = ? AND expires_at <= ? AND requested_at <= ?

-- name: put_request
-- A person has one code: a new one replaces the old.
INSERT INTO pairing_requests (platform, account, native_id, display_name, salt, code_hash, requested_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (platform, account, native_id) DO UPDATE SET display_name = excluded.display_name, salt = excluded.salt,
    code_hash = excluded.code_hash, requested_at = excluded.requested_at, expires_at = excluded.expires_at

-- name: codes
SELECT salt, code_hash, {request} FROM pairing_requests WHERE platform = ? AND expires_at > ?
ORDER BY requested_at, account, native_id

-- name: waiting
SELECT {request} FROM pairing_requests WHERE expires_at > ? ORDER BY platform, requested_at, account, native_id

-- name: drop_request
DELETE FROM pairing_requests WHERE platform = ? AND account = ? AND native_id = ?

-- name: clear
DELETE FROM pairing_requests

-- name: clear_platform
DELETE FROM pairing_requests WHERE platform = ?

-- name: set_state
INSERT INTO pairings (platform, account, native_id, state, changed_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (platform, account, native_id) DO UPDATE SET state = excluded.state, changed_at = excluded.changed_at

-- name: accounts
-- The accounts of ours under which an id is known.
SELECT account FROM identities WHERE platform = ? AND native_id = ?
UNION SELECT account FROM pairings WHERE platform = ? AND native_id = ?

-- name: has_identity
SELECT 1 FROM identities WHERE person_id = ? AND platform = ? AND account = ? LIMIT 1

-- name: standings
-- The facts for a decision. Guests without a manual decision are left out: an open platform has any number.
SELECT i.platform, i.account, i.native_id, i.person_id, p.role, COALESCE(s.state, 'seen'), p.display_name, s.changed_at
FROM identities i JOIN people p ON p.id = i.person_id
LEFT JOIN pairings s ON s.platform = i.platform AND s.account = i.account AND s.native_id = i.native_id
WHERE p.role <> 'guest' OR s.state IS NOT NULL OR i.native_id IN {texts}
UNION ALL
SELECT s.platform, s.account, s.native_id, NULL, 'guest', s.state, NULL, s.changed_at FROM pairings s
WHERE NOT EXISTS (
    SELECT 1 FROM identities i
    WHERE i.platform = s.platform AND i.account = s.account AND i.native_id = s.native_id
)
