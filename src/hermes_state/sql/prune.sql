-- Sessions that a rule may remove. `loose` means that nothing leads to a conversation any more.

-- let: loose
-- No route to it; nobody works on it or on its delegations; its newest segment has ended; no reply of it is pending
-- or waits for the owner, and no turn of it waits to be recovered.
NOT EXISTS (SELECT 1 FROM sessions o JOIN routes r ON r.session_id = o.id WHERE o.root_id = s.root_id)
    AND NOT EXISTS (
        SELECT 1 FROM leases l WHERE l.conversation_id = s.root_id AND l.holder IS NOT NULL AND l.expires_at > {now}
    )
    AND NOT EXISTS (
        SELECT 1 FROM sessions d JOIN leases l ON l.conversation_id = d.root_id
        WHERE d.parent_session_id = s.id AND l.holder IS NOT NULL AND l.expires_at > {now}
    )
    AND NOT EXISTS (
        SELECT 1 FROM conversations c JOIN sessions t ON t.id = c.tip_id WHERE c.id = s.root_id AND t.ended_at IS NULL
    )
    AND NOT EXISTS (
        SELECT 1 FROM outbox o WHERE o.conversation_id = s.root_id AND o.state IN ('pending', 'sending', 'held')
    )
    AND NOT EXISTS (SELECT 1 FROM turns w WHERE w.conversation_id = s.root_id AND w.state IN ('running', 'waiting'))

-- name: candidates
-- A conversation's delegations are part of it, and are removed with it.
SELECT s.id FROM sessions s
WHERE s.ended_at IS NOT NULL AND {loose}
    AND NOT EXISTS (
        SELECT 1 FROM conversations c JOIN sessions p ON p.id = c.origin_session_id
        WHERE c.id = s.root_id AND c.origin_kind = 'delegate'
    )

-- name: ghosts
-- A segment of a longer conversation does not count, even without messages: its continuation has them.
SELECT s.id FROM sessions s
WHERE s.source = 'tui' AND s.title IS NULL AND s.ended_at IS NOT NULL AND s.started_at < ?
    AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id AND m.replaced = 0)
    AND NOT EXISTS (SELECT 1 FROM sessions o WHERE o.root_id = s.root_id AND o.id <> s.id)
    AND {loose}

-- name: empty
SELECT s.id FROM sessions s WHERE s.message_count = 0 AND s.ended_at IS NOT NULL AND s.archived = 0 AND {loose}

-- name: in_order
-- Segments of one conversation together, so that one transaction removes it.
ORDER BY s.root_id, s.id

-- name: among
AND s.id IN {texts}

-- name: rows
SELECT * FROM sessions WHERE id IN {texts} ORDER BY started_at, id

-- name: archive
UPDATE sessions SET archived = 1
WHERE archived = 0 AND root_id IN (SELECT root_id FROM sessions WHERE id IN {texts})

-- A condition on the statements above; the others compare a column with a value (`prune._condition`).

-- name: older
-- The whole conversation: it neither began nor got a message since.
AND NOT EXISTS (
    SELECT 1 FROM sessions o
    WHERE o.root_id = s.root_id AND (o.started_at >= ? OR (o.message_count > 0 AND o.last_active >= ?))
)
