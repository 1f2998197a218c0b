-- The content of an archive. These statements and archive_write.py sort the lines the same on both engines: by the
-- bytes of ids, and within a session by the order of its rows.

-- name: roots
SELECT DISTINCT root_id FROM sessions

-- name: conversation
SELECT * FROM conversations WHERE id = ?

-- name: sessions
SELECT * FROM sessions WHERE root_id = ?

-- name: messages
-- Replaced rows will be removed and are no content any more.
SELECT * FROM messages WHERE session_id = ? AND id > ? AND replaced = 0 ORDER BY id LIMIT ?

-- name: usage
SELECT u.* FROM session_model_usage u JOIN sessions s ON s.id = u.session_id WHERE s.root_id = ?

-- name: routes
SELECT * FROM routes

-- name: routes_of
SELECT r.* FROM routes r JOIN sessions s ON s.id = r.session_id WHERE s.root_id = ?

-- name: people
SELECT * FROM people

-- name: person
SELECT * FROM people WHERE id = ?

-- name: identities_of
SELECT * FROM identities WHERE person_id = ?

-- name: known
-- Whether the store has anything of this conversation.
SELECT id FROM sessions WHERE id IN {texts} UNION SELECT id FROM conversations WHERE id = ?

-- name: link
-- The parent may be stored later than its child, in another conversation of the same archive. Only conversations of the
-- importing owner are linked: else an archive could put one person's conversation before another's.
UPDATE sessions SET parent_session_id = ? WHERE id = ? AND parent_session_id IS NULL
    AND NOT EXISTS (SELECT 1 FROM conversations c WHERE c.id = sessions.root_id AND c.owner_id IS DISTINCT FROM ?)
    AND EXISTS (
        SELECT 1 FROM sessions p LEFT JOIN conversations c ON c.id = p.root_id
        WHERE p.id = ? AND (c.id IS NULL OR c.owner_id = ?)
    )
