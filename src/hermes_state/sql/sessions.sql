-- Segments of conversations: begin, end and plain columns.

-- name: get
SELECT * FROM sessions WHERE id = ?

-- name: end_live
-- The first reason wins.
UPDATE sessions SET ended_at = ?, end_reason = ? WHERE id = ? AND ended_at IS NULL

-- name: promote
-- End a live row; correct the reason of one that ended by accident; leave any other unchanged.
UPDATE sessions SET ended_at = COALESCE(ended_at, ?), end_reason = ?
WHERE id = ? AND (ended_at IS NULL OR end_reason IN ('agent_close', 'ws_orphan_reap'))

-- name: set_system_prompt
-- A new agent sets the prompt again; if it is the same, nothing is written and nothing waits for the disk.
UPDATE sessions SET system_prompt = ? WHERE id = ? AND system_prompt IS DISTINCT FROM ?

-- name: set_archived
UPDATE sessions SET archived = ? WHERE root_id = (SELECT root_id FROM sessions WHERE id = ?)

-- name: orphans
-- Continuations of a compression that nobody ever used, as other programs leave them. A chat that was compressed and
-- then left alone looks the same, so rows that the ledger rotated, a route points at or somebody works on are excluded.
SELECT s.id FROM sessions s JOIN sessions p ON p.id = s.parent_session_id
WHERE s.api_call_count = 0 AND s.ended_at IS NULL AND s.end_reason IS NULL AND s.started_at < ?
    AND p.end_reason = 'compression'
    AND EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id AND m.replaced = 0)
    AND NOT EXISTS (SELECT 1 FROM routes r WHERE r.session_id = s.id)
    AND NOT EXISTS (SELECT 1 FROM conversations c WHERE c.id = s.root_id AND c.tip_id = s.id AND c.rotations > 0)
    AND NOT EXISTS (
        SELECT 1 FROM leases l WHERE l.conversation_id = s.root_id AND l.holder IS NOT NULL AND l.expires_at > {now}
    )

-- name: owner_of_identity
SELECT person_id FROM identities WHERE platform = ? AND native_id = ? ORDER BY account LIMIT 1
