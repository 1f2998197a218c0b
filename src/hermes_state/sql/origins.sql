-- Whose words a conversation holds: see conversations/origins.py.

-- name: child_parent
SELECT parent_id FROM children WHERE conversation_id = ?

-- name: job_parent
-- The conversation in which the job was made whose occurrence this conversation is.
SELECT jobs.conversation_id FROM turns
JOIN inbox ON inbox.turn_id = turns.id
JOIN jobs ON jobs.id = inbox.job_id
WHERE turns.conversation_id = ? AND jobs.conversation_id IS NOT NULL
LIMIT 1

-- name: trusted
-- The words of staff and of one person, in every segment; what was undone no longer counts.
SELECT messages.content, messages.content_kind FROM sessions
JOIN messages ON messages.session_id = sessions.id
WHERE sessions.root_id IN {texts} AND messages.origin IN ('staff', 'person')
    AND (messages.origin = 'staff' OR coalesce(messages.person_id, '') = ?)
    AND messages.replaced = 0 AND (messages.active = 1 OR messages.compacted = 1)

-- name: others
-- Every other row with an origin, oldest first, in pages.
SELECT messages.id, messages.session_id, messages.origin, messages.turn_id, messages.tool_name, messages.content,
    messages.content_kind
FROM sessions
JOIN messages ON messages.session_id = sessions.id
WHERE sessions.root_id IN {texts} AND messages.origin IS NOT NULL AND messages.origin <> 'staff'
    AND (messages.origin <> 'person' OR coalesce(messages.person_id, '') <> ?)
    AND messages.replaced = 0 AND messages.id > ?
ORDER BY messages.id LIMIT ?

-- name: any_outside
SELECT 1 FROM sessions
JOIN messages ON messages.session_id = sessions.id
WHERE sessions.root_id IN {texts} AND messages.replaced = 0 AND (
    (messages.origin IS NOT NULL AND messages.origin NOT IN ('staff', 'person'))
    OR messages.api_content LIKE '%[In reply to a message of %' OR messages.api_content LIKE '%[Its script printed:]%')
LIMIT 1

-- name: steps_since
SELECT count(*) FROM messages WHERE session_id = ? AND turn_id = ? AND id > ? AND role = 'assistant'

-- name: in_turn
-- In every segment: a compression in the middle of the turn moves rows out of sight, not out of the turn.
SELECT CASE WHEN messages.api_content LIKE '%[Its script printed:]%' THEN 'outside:the script of a job'
        WHEN messages.api_content LIKE '%[In reply to a message of %' THEN 'outside:a quoted message'
        ELSE messages.origin END,
    messages.content, messages.content_kind
FROM sessions
JOIN messages ON messages.session_id = sessions.id
WHERE sessions.root_id = ? AND messages.turn_id = ? AND messages.replaced = 0 AND (
    messages.origin IS NOT NULL
    OR messages.api_content LIKE '%[In reply to a message of %' OR messages.api_content LIKE '%[Its script printed:]%')
ORDER BY messages.id DESC
