-- Erasing the rows of conversations. Rows without a conversation id are found through their turn, so the turns are
-- deleted after them.

-- name: erase_inbox
DELETE FROM inbox WHERE turn_id IN (SELECT id FROM turns WHERE conversation_id IN {texts})

-- name: erase_prompts
-- Prompts that a terminal stored for the conversation and no turn took.
DELETE FROM inbox WHERE platform = 'local' AND account = '' AND chat_id IN {texts}

-- name: erase_effects
DELETE FROM effects WHERE turn_id IN (SELECT id FROM turns WHERE conversation_id IN {texts})

-- name: erase_turn_items
DELETE FROM outbox
WHERE conversation_id IS NULL AND turn_id IN (SELECT id FROM turns WHERE conversation_id IN {texts})

-- name: erase_children
DELETE FROM children WHERE parent_id IN {texts}

-- name: erase_grants
-- Grants for always hold in every conversation, until somebody revokes them.
DELETE FROM grants WHERE conversation_id IN {texts} AND span <> 'always'

-- name: erase_break_counts
DELETE FROM prefix_break_counts WHERE conversation_id IN {texts} AND conversation_id <> ''

-- name: erase_tallies
DELETE FROM budget_tallies WHERE scope = 'conversation' AND subject IN {texts}

-- name: unname_reservations
-- The call still counts for its day.
UPDATE budget_reservations SET conversation_id = '' WHERE conversation_id IN {texts}

-- name: unname_jobs
-- A job goes on: who deletes a conversation does not expect to lose a reminder.
UPDATE jobs SET conversation_id = NULL WHERE conversation_id IN {texts}

-- name: erase_from
DELETE FROM {table} WHERE conversation_id IN {texts}

-- Rows that maintenance removes by itself, in small steps.

-- name: replaced
-- Visible to no reader. `idx_messages_hidden` finds them without a scan.
SELECT id FROM messages WHERE replaced > 0 AND replaced < ? ORDER BY id LIMIT ?

-- name: forget
-- The search index removes them too.
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
