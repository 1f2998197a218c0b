-- The segments of a conversation, and the conversations that began in one of them.

-- name: segments
-- Other programs may have left the counters empty.
SELECT id, parent_session_id, source, title, preview, started_at, last_active, ended_at, end_reason,
    COALESCE(message_count, 0) AS message_count, COALESCE(tool_call_count, 0) AS tool_call_count, archived, root_id
FROM sessions WHERE root_id = ? ORDER BY started_at, id

-- name: conversation
-- The row of a conversation, and the present conversation of its origin.
SELECT c.id, c.tip_id, c.origin_kind, c.origin_session_id, o.root_id AS origin_root
FROM conversations c LEFT JOIN sessions o ON o.id = c.origin_session_id WHERE c.id = ?

-- name: descendants
-- Conversations that began in this one, and their descendants. A reset continues a chat and is no part of this tree: it
-- is named and not followed. The depth limit ends a cycle, which a broken home may contain.
WITH RECURSIVE family (id, kind, depth) AS (
    SELECT id, origin_kind, 0 FROM conversations WHERE id = ?
    UNION
    SELECT c.id, c.origin_kind, f.depth + 1
    FROM family f
    JOIN sessions s ON s.root_id = f.id
    JOIN conversations c ON c.origin_session_id = s.id
    WHERE f.depth = 0 OR (f.depth < 16 AND f.kind <> 'reset')
)
SELECT DISTINCT c.id, c.tip_id, c.origin_kind, c.origin_session_id, o.root_id AS origin_root
FROM family f JOIN conversations c ON c.id = f.id LEFT JOIN sessions o ON o.id = c.origin_session_id
WHERE f.depth > 0 ORDER BY c.id LIMIT ?
