-- Answers that wait for the owner, the chats whose answers do, and what the model has to learn about them.

-- name: hold_chat
INSERT INTO held_chats (platform, chat_id, held, changed_by, changed_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (platform, chat_id) DO UPDATE
SET held = excluded.held, changed_by = excluded.changed_by, changed_at = excluded.changed_at

-- name: chat
-- What was said about a chat by hand, and whether an answer to it is held now.
SELECT (SELECT held FROM held_chats WHERE platform = ? AND chat_id = ?),
    EXISTS (SELECT 1 FROM outbox WHERE platform = ? AND chat_id = ? AND state = 'held')

-- name: chats
SELECT platform, chat_id, held FROM held_chats ORDER BY platform, chat_id

-- name: list
SELECT {columns} FROM outbox WHERE state = 'held' AND id > ? ORDER BY id LIMIT ?

-- name: count
SELECT COUNT(*) FROM outbox WHERE state = 'held'

-- name: older
SELECT id FROM outbox WHERE platform = ? AND chat_id = ? AND state = 'held' AND id < ? ORDER BY id LIMIT 1

-- name: release
-- Due at once. Whoever decides second changes nothing.
UPDATE outbox SET state = 'pending', payload = ?, next_attempt_at = 0 WHERE id = ? AND state = 'held'

-- name: drop
UPDATE outbox SET state = 'dropped', payload = ?, error = ?, ended_at = {now} WHERE id = ? AND state = 'held'

-- let: chat_of_job
SELECT s.root_id FROM inbox i JOIN jobs j ON j.id = i.job_id JOIN routes r ON r.session_key = j.route
    JOIN sessions s ON s.id = r.session_id

-- name: chat_of_turn
-- The conversation of the chat that reads the answer of a job's turn.
{chat_of_job} WHERE i.turn_id = ? ORDER BY r.updated_at DESC LIMIT 1

-- name: chat_of_message
-- The same, for a message that a job sent without a turn.
{chat_of_job} WHERE i.platform = ? AND i.account = ? AND i.chat_id = ? AND i.message_id = ?
ORDER BY r.updated_at DESC LIMIT 1

-- name: note
INSERT INTO answer_changes (conversation_id, note, at) VALUES (?, ?, ?)

-- name: take_notes
DELETE FROM answer_changes WHERE conversation_id = ? RETURNING id, note

-- name: prune
DELETE FROM answer_changes WHERE id IN (SELECT id FROM answer_changes WHERE at < ? LIMIT ?)
