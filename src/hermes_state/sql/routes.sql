-- Routes one by one and in pages, with facts about their sessions. A route's own time only changes when the route
-- moves; the session's changes with every message, so the later of the two is the last use of the route.

-- let: said
-- When the session's newest message came. A session without messages says nothing about the use of its route.
CASE WHEN s.message_count > 0 THEN s.last_active END

-- let: known
r.session_key, r.session_id, r.entry_json, r.updated_at, s.root_id, {said}, s.ended_at, p.zone, s.message_count

-- let: joined
routes r
LEFT JOIN sessions s ON s.id = r.session_id
LEFT JOIN conversations c ON c.id = s.root_id
LEFT JOIN people p ON p.id = c.owner_id

-- let: of_others
-- Whether the conversation is not the sender's: a private one must belong to the sender, a group's to nobody.
CASE WHEN CAST(? AS TEXT) <> 'dm' THEN c.owner_id IS NOT NULL
    WHEN c.owner_id IS NULL THEN COALESCE(s.chat_type, 'dm') <> 'dm'
    ELSE NOT EXISTS (
        SELECT 1 FROM identities i WHERE i.person_id = c.owner_id AND i.platform = ? AND i.native_id = ?
    )
END

-- name: look
SELECT {known} FROM {joined} WHERE r.scope = ? AND r.session_key = ?

-- name: look_from
-- Everything that a message needs to continue its conversation: one indexed read.
SELECT {known}, {of_others} FROM {joined} WHERE r.scope = ? AND r.session_key = ?

-- name: session_of_others
SELECT {of_others} FROM sessions s LEFT JOIN conversations c ON c.id = s.root_id WHERE s.id = ?

-- name: page
SELECT {known} FROM {joined} WHERE r.scope = ? AND r.session_key > ? ORDER BY r.session_key LIMIT ?

-- name: newest
-- For the mirror, which is bounded.
SELECT {known} FROM {joined} WHERE r.scope = ? ORDER BY r.updated_at DESC, r.session_key LIMIT ? OFFSET ?

-- let: since_unused
-- Along the index on the time of the route.
SELECT {known} FROM {joined} WHERE r.scope = ? AND r.updated_at < ? AND (r.updated_at > ? OR (r.updated_at = ? AND r.session_key > ?))

-- name: unused
-- Routes that nobody used since a time.
{since_unused} AND COALESCE({said}, 0) < ? ORDER BY r.updated_at, r.session_key LIMIT ?

-- name: open_unused
-- The same among open conversations: those that may have expired.
{since_unused} AND COALESCE({said}, 0) < ? AND s.ended_at IS NULL AND s.expiry_finalized = 0
ORDER BY r.updated_at, r.session_key LIMIT ?

-- name: drop_unused
-- Checked again while writing: somebody may have come back in between.
DELETE FROM routes WHERE scope = ? AND session_key IN {texts} AND updated_at < ? AND NOT EXISTS (
    SELECT 1 FROM sessions s WHERE s.id = routes.session_id AND {said} >= ?
)

-- name: count
SELECT count(*) FROM routes WHERE scope = ?

-- name: any
SELECT 1 FROM routes WHERE scope = ? LIMIT 1

-- name: of_session
SELECT session_key FROM routes WHERE scope = ? AND session_id = ? ORDER BY updated_at DESC, session_key LIMIT 1

-- name: rename
UPDATE routes SET session_key = ? WHERE scope = ? AND session_key = ?

-- name: rename_peer
-- So that the conversation is found by its new key if the route is lost.
UPDATE sessions SET session_key = ? WHERE id = ? AND session_key = ?

-- name: route
SELECT session_id, entry_json, updated_at FROM routes WHERE scope = ? AND session_key = ? {lock}

-- name: other_route
SELECT 1 FROM routes WHERE session_id = ? AND NOT (scope = ? AND session_key = ?) LIMIT 1

-- name: drop_route
DELETE FROM routes WHERE scope = ? AND session_key = ?

-- name: move_routes
UPDATE routes SET session_id = ? WHERE session_id = ?

-- let: resumable
-- Live, or ended by accident; and worth resuming.
(s.ended_at IS NULL OR s.end_reason IN ('agent_close', 'ws_orphan_reap'))
    AND EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id AND m.replaced = 0)

-- name: latest_by_key
SELECT s.* FROM sessions s WHERE s.source = ? AND s.session_key = ? AND {resumable}
ORDER BY s.started_at DESC, s.id DESC LIMIT 1

-- name: latest_by_peer
SELECT s.* FROM sessions s
WHERE s.source = ? AND s.session_key IS NOT NULL
    AND s.user_id IS NOT DISTINCT FROM ? AND s.chat_id IS NOT DISTINCT FROM ?
    AND s.chat_type IS NOT DISTINCT FROM ? AND s.thread_id IS NOT DISTINCT FROM ? AND {resumable}
ORDER BY s.started_at DESC, s.id DESC LIMIT 1

-- name: put
-- Without an entry (NULL) the route keeps its own. With 1 as the last parameter a route that already leads somewhere
-- stays unchanged; no row changes when another process was first, for which this waits.
INSERT INTO routes (scope, session_key, session_id, entry_json, updated_at) VALUES (?, ?, ?, COALESCE(?, '{}'), ?)
ON CONFLICT (scope, session_key) DO UPDATE SET
    session_id = excluded.session_id,
    entry_json = COALESCE(?, routes.entry_json),
    updated_at = excluded.updated_at
WHERE CAST(? AS INTEGER) = 0 OR routes.session_id IS NULL

-- name: of_scope
SELECT session_key, session_id, entry_json FROM routes WHERE scope = ? ORDER BY updated_at, session_key
