-- Deleting sessions with their rows, and fixing the remaining ones. Every statement takes the sessions as one list.

-- name: children
-- Conversations that these sessions started; the caller picks the delegations.
SELECT s.root_id, c.origin_kind, s.model_config FROM sessions s JOIN conversations c ON c.id = s.id
WHERE s.parent_session_id IN {texts}

-- name: segments_of
SELECT id FROM sessions WHERE root_id IN {texts} ORDER BY root_id, started_at, id

-- name: roots
SELECT DISTINCT root_id FROM sessions WHERE id IN {texts} ORDER BY root_id

-- name: waiting
-- A message that was received after a time and waits on a route to the conversation.
SELECT 1 FROM sessions s JOIN routes r ON r.session_id = s.id JOIN inbox i ON i.route = r.session_key
WHERE s.root_id = ? AND i.state = 'queued' AND i.received_at > ? LIMIT 1

-- name: other_children
-- Children with their own conversations.
SELECT s.id FROM sessions s
WHERE s.parent_session_id IN {texts} AND s.root_id = s.id AND s.id NOT IN {texts}

-- name: stand_alone
-- A plain child is hidden behind its parent; without one it is listed.
UPDATE conversations SET origin_kind = 'new' WHERE id = ? AND origin_kind = 'child'

-- name: forget_origin
UPDATE conversations SET origin_session_id = NULL WHERE origin_session_id IN {texts}

-- name: no_longer_compressed
-- Nothing continues it any more, so it must not send writers elsewhere.
UPDATE sessions SET end_reason = 'continuation_deleted'
WHERE root_id = ? AND end_reason = 'compression'
    AND NOT EXISTS (
        SELECT 1 FROM sessions c WHERE c.parent_session_id = sessions.id AND c.root_id = sessions.root_id
            AND COALESCE(c.end_reason, '') <> 'uncompressed'
    )

-- name: follow_tip
-- Move a route from an erased segment to its conversation's tip.
UPDATE routes SET session_id = ? WHERE session_id IN {texts}

-- name: inherit_conversation
INSERT INTO conversations (id, tip_id, owner_id, origin_kind, origin_session_id, rotations, created_at)
SELECT ?, ?, owner_id, CASE WHEN origin_kind = 'child' THEN 'new' ELSE origin_kind END, origin_session_id, rotations,
    created_at
FROM conversations WHERE id = ?

-- name: rekey
UPDATE {table} SET conversation_id = ? WHERE conversation_id = ?

-- name: rekey_tallies
UPDATE budget_tallies SET subject = ? WHERE scope = 'conversation' AND subject = ?

-- name: forget_words
INSERT INTO search_forget (message_id) SELECT id FROM messages WHERE session_id IN {texts}
ON CONFLICT (message_id) DO NOTHING

-- name: erase_days
DELETE FROM usage_days WHERE session_id IN {texts} AND session_id <> ''

-- name: erase_marks
-- The marks of rows that a compression had written to them (`uncompress`).
DELETE FROM state_meta WHERE key LIKE 'carried:%' AND substr(key, 9) IN {texts}

-- name: erase_of
DELETE FROM {table} WHERE session_id IN {texts}

-- name: erase
DELETE FROM {table} WHERE id IN {texts}

-- name: among
SELECT id FROM sessions WHERE id IN {texts} ORDER BY id
