-- The links of a conversation. `root_id` is the conversation; within it, parents lead from segment to segment.

-- name: node
SELECT id, root_id, parent_session_id, end_reason, source FROM sessions WHERE id = ?

-- name: continuations
-- Homes that were compressed twice at once have several: one that was itself continued is preferred, then a live one,
-- then the newest. A segment whose compression was undone continues nothing.
SELECT id FROM sessions WHERE parent_session_id = ? AND root_id = ?
    AND (end_reason IS NULL OR end_reason <> 'uncompressed')
ORDER BY CASE WHEN end_reason = 'compression' THEN 0 WHEN ended_at IS NULL THEN 1 ELSE 2 END,
    last_active DESC, started_at DESC, id DESC
LIMIT 1

-- name: segments
SELECT id, parent_session_id FROM sessions WHERE root_id = ? ORDER BY started_at, id

-- name: plain_children
SELECT s.id FROM sessions s JOIN conversations c ON c.id = s.id
WHERE s.parent_session_id = ? AND c.origin_kind = 'child' AND s.source <> 'tool'

-- name: move_root
UPDATE sessions SET root_id = ? WHERE root_id = ?

-- name: insert_conversation
INSERT INTO conversations (id, tip_id, owner_id, origin_kind, origin_session_id, created_at)
VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING

-- name: delete_conversation
DELETE FROM conversations WHERE id = ?

-- name: conversation
SELECT id, tip_id, owner_id, origin_kind, origin_session_id, created_at FROM conversations WHERE id = ?

-- name: set_tip
UPDATE conversations SET tip_id = ? WHERE id = ?

-- name: set_listed
-- One row represents the conversation: its tip. Delegations and stray children are not listed.
UPDATE sessions SET listed = CASE WHEN id = ? AND ? IN ('new', 'branch', 'reset') THEN 1 ELSE 0 END
WHERE root_id = ? AND listed <> CASE WHEN id = ? AND ? IN ('new', 'branch', 'reset') THEN 1 ELSE 0 END

-- name: newest_plain_child
-- Where to resume: the newest child that is no branch and no delegation.
SELECT s.id FROM sessions s LEFT JOIN conversations c ON c.id = s.id
WHERE s.parent_session_id = ? AND (c.origin_kind IS NULL OR c.origin_kind IN ('child', 'new'))
    AND (s.end_reason IS NULL OR s.end_reason <> 'uncompressed')
ORDER BY s.started_at DESC, s.id DESC LIMIT 1

-- name: has_messages
SELECT 1 FROM messages WHERE session_id = ? AND replaced = 0 LIMIT 1
