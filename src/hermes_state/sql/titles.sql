-- Titles are unique among the conversations of one owner, so that a person can name one. A group's conversations have
-- no owner: their titles are unique in their chat.

-- let: beside
EXISTS (
    SELECT 1 FROM sessions own LEFT JOIN conversations oc ON oc.id = own.root_id
    WHERE own.id = ? AND oc.owner_id IS NOT DISTINCT FROM c.owner_id
        AND (c.owner_id IS NOT NULL OR (own.source = s.source AND own.chat_id IS NOT DISTINCT FROM s.chat_id))
)

-- name: lock
-- PostgreSQL only: two writers of the same title wait for each other.
SELECT pg_advisory_xact_lock(hashtextextended(?, 7))

-- name: holder
SELECT id, root_id FROM sessions WHERE title = ?

-- name: holder_beside
SELECT s.id, s.root_id FROM sessions s LEFT JOIN conversations c ON c.id = s.root_id
WHERE s.title = ? AND s.id <> ? AND {beside}

-- name: numbered_beside
SELECT s.id, s.title, s.started_at FROM sessions s LEFT JOIN conversations c ON c.id = s.root_id
WHERE s.title LIKE ? ESCAPE '\' AND {beside}

-- name: get
SELECT title FROM sessions WHERE id = ?

-- name: numbered
SELECT s.id, s.title, s.started_at FROM sessions s LEFT JOIN conversations c ON c.id = s.root_id
WHERE s.title LIKE ? ESCAPE '\'
ORDER BY CASE WHEN c.owner_id = 'owner' THEN 0 ELSE 1 END, s.started_at DESC, s.id DESC

-- name: by_title
-- Those of this machine's owner first, then the newest.
SELECT s.* FROM sessions s LEFT JOIN conversations c ON c.id = s.root_id WHERE s.title = ?
ORDER BY CASE WHEN c.owner_id = 'owner' THEN 0 ELSE 1 END, s.started_at DESC, s.id DESC
