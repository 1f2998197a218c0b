-- Contradictions between rows. Every statement lists faulty rows, up to a limit.

-- name: sound @sqlite
PRAGMA integrity_check(20)

-- name: quickly_sound @sqlite
PRAGMA quick_check(20)

-- name: broken_links @sqlite
SELECT DISTINCT "table" || ' → ' || "parent" FROM pragma_foreign_key_check
WHERE NOT ("table" = 'sessions' AND "parent" = 'sessions')

-- name: parent_missing
SELECT s.id FROM sessions s
WHERE s.parent_session_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM sessions p WHERE p.id = s.parent_session_id)
ORDER BY s.id LIMIT ?

-- name: root_missing
-- Sessions of a conversation whose first segment is missing.
SELECT DISTINCT s.root_id FROM sessions s
WHERE NOT EXISTS (SELECT 1 FROM sessions r WHERE r.id = s.root_id)
ORDER BY 1 LIMIT ?

-- name: chain_broken
-- A segment that no other segment of its conversation leads to.
SELECT s.id FROM sessions s LEFT JOIN sessions p ON p.id = s.parent_session_id
WHERE s.id <> s.root_id AND (p.id IS NULL OR p.root_id <> s.root_id)
    AND EXISTS (SELECT 1 FROM sessions r WHERE r.id = s.root_id)
ORDER BY s.id LIMIT ?

-- name: conversation_missing
SELECT DISTINCT s.root_id FROM sessions s
WHERE NOT EXISTS (SELECT 1 FROM conversations c WHERE c.id = s.root_id)
    AND EXISTS (SELECT 1 FROM sessions r WHERE r.id = s.root_id)
ORDER BY 1 LIMIT ?

-- name: conversation_empty
SELECT c.id FROM conversations c WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.root_id = c.id)
ORDER BY c.id LIMIT ?

-- name: half_rotation
-- Ended by compression, without a continuation. A moment of grace: other programs make the two rows one by one.
SELECT s.id FROM sessions s
WHERE s.end_reason = 'compression' AND COALESCE(s.ended_at, 0) < ?
    AND NOT EXISTS (
        SELECT 1 FROM sessions c WHERE c.parent_session_id = s.id AND c.root_id = s.root_id
            AND COALESCE(c.end_reason, '') <> 'uncompressed'
    )
ORDER BY s.id LIMIT ?

-- name: parent_open
-- A continuation exists, but its parent never ended. An undone compression does not count.
SELECT DISTINCT p.id FROM sessions p JOIN sessions c ON c.parent_session_id = p.id AND c.root_id = p.root_id
WHERE c.id <> p.id AND (p.end_reason IS NULL OR p.end_reason NOT IN ('compression', 'uncompressed'))
    AND COALESCE(c.end_reason, '') <> 'uncompressed'
ORDER BY 1 LIMIT ?

-- name: close_parent
UPDATE sessions SET end_reason = 'compression', ended_at = COALESCE(
    ended_at, (SELECT min(c.started_at) FROM sessions c WHERE c.parent_session_id = sessions.id)
) WHERE id = ?

-- name: tip_wrong
SELECT c.id FROM conversations c LEFT JOIN sessions t ON t.id = c.tip_id AND t.root_id = c.id
WHERE EXISTS (SELECT 1 FROM sessions s WHERE s.root_id = c.id)
    AND (t.id IS NULL OR t.end_reason = 'compression' AND EXISTS (
        SELECT 1 FROM sessions n WHERE n.parent_session_id = t.id AND n.root_id = c.id AND n.id <> t.id
            AND COALESCE(n.end_reason, '') <> 'uncompressed'
    ))
ORDER BY c.id LIMIT ?

-- name: listed_wrong
SELECT c.id FROM conversations c JOIN sessions s ON s.root_id = c.id
GROUP BY c.id, c.tip_id, c.origin_kind
HAVING sum(CASE WHEN s.listed = 1 AND s.id = c.tip_id THEN 1 ELSE 0 END)
        <> CASE WHEN c.origin_kind IN ('new', 'branch', 'reset') THEN 1 ELSE 0 END
    OR sum(CASE WHEN s.listed = 1 AND s.id <> c.tip_id THEN 1 ELSE 0 END) > 0
ORDER BY c.id LIMIT ?

-- name: route_behind
-- A route that a compression did not move.
SELECT DISTINCT s.id FROM routes r JOIN sessions s ON s.id = r.session_id
WHERE s.end_reason = 'compression'
    AND EXISTS (SELECT 1 FROM sessions c WHERE c.parent_session_id = s.id AND c.root_id = s.root_id)
ORDER BY 1 LIMIT ?

-- name: route_nowhere
SELECT r.session_key FROM routes r
WHERE r.session_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = r.session_id)
ORDER BY 1 LIMIT ?

-- name: counters
-- Counters are at least the number of visible rows.
SELECT s.id FROM sessions s JOIN (
    SELECT session_id, count(*) AS live, max(timestamp) AS newest FROM messages WHERE active = 1 GROUP BY session_id
) m ON m.session_id = s.id
WHERE COALESCE(s.message_count, 0) < m.live OR s.last_active < m.newest
ORDER BY s.id LIMIT ?

-- name: recount
UPDATE sessions SET
    message_count = {greatest}(
        COALESCE(message_count, 0), (SELECT count(*) FROM messages m WHERE m.session_id = sessions.id AND m.active = 1)
    ),
    last_active = {greatest}(
        last_active, (SELECT max(m.timestamp) FROM messages m WHERE m.session_id = sessions.id AND m.active = 1)
    )
WHERE id = ?

-- name: titles
SELECT id FROM sessions WHERE length(title) > ? ORDER BY id LIMIT ?

-- name: turns
-- Running turns of conversations without a lease.
SELECT t.id FROM turns t
WHERE t.state = 'running' AND t.updated_at < ? AND NOT EXISTS (
    SELECT 1 FROM leases l
    WHERE l.conversation_id = t.conversation_id AND l.holder IS NOT NULL AND l.expires_at > {now}
)
ORDER BY t.id LIMIT ?
