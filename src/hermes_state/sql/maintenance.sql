-- What maintenance removes by itself, in small steps.

-- name: replaced
-- Visible to no reader any more. `idx_messages_hidden` finds them without a scan.
SELECT id FROM messages WHERE replaced > 0 AND replaced < ? ORDER BY id LIMIT ?

-- name: forget
-- The search index lets go of them too.
INSERT INTO search_forget (message_id) SELECT id FROM messages WHERE id IN {numbers} ON CONFLICT DO NOTHING

-- name: remove
DELETE FROM messages WHERE id IN {numbers}

-- name: old_locks
DELETE FROM compression_locks WHERE expires_at < ?

-- name: free_pages @sqlite
SELECT (SELECT freelist_count FROM pragma_freelist_count), (SELECT page_count FROM pragma_page_count)

-- name: free_pages @postgresql
-- Nobody waits for its VACUUM, so it is always worth it.
SELECT 1, 1
