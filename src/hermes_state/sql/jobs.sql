-- Jobs, and their occurrences among the inbox rows.

-- let: as_read
id = ? AND state = ? AND changed_at = ? AND (next_at = ? OR next_at IS NULL)

-- name: add
INSERT INTO jobs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING

-- name: get
SELECT {columns} FROM jobs WHERE id = ?

-- name: list
SELECT {columns} FROM jobs
WHERE (CAST(? AS TEXT) IS NULL OR person_id = ?) AND (CAST(? AS TEXT) IS NULL OR state <> ?)
ORDER BY made_at, id LIMIT ? OFFSET ?

-- name: of_route
SELECT {columns} FROM jobs WHERE route = ? ORDER BY made_at, id LIMIT 1000

-- name: count
SELECT COUNT(*) FROM jobs WHERE person_id = ? AND state <> 'done'

-- name: next_due
SELECT MIN(next_at) FROM jobs WHERE state = 'active'

-- name: active_count
SELECT COUNT(*) FROM jobs WHERE state = 'active'

-- name: due
SELECT {columns} FROM jobs WHERE state = 'active' AND next_at <= ? ORDER BY next_at LIMIT ?

-- name: move
-- Only the process that finds the instant unsettled settles it.
UPDATE jobs SET next_at = ?, state = ?, changed_at = ?
WHERE id = ? AND next_at = ? AND state = 'active' AND changed_at = ?

-- name: change
UPDATE jobs SET state = ?, next_at = ?, changed_at = ? WHERE {as_read}

-- name: remove
DELETE FROM jobs WHERE {as_read}

-- name: name_row
UPDATE inbox SET job_id = ? WHERE id = ?

-- name: end_row
UPDATE inbox SET state = ?, reason = ?, ended_at = ? WHERE id = ? AND state = 'queued'

-- name: drop_rows
UPDATE inbox SET state = 'silent', reason = ?, ended_at = ? WHERE job_id = ? AND state = 'queued'

-- let: occurrence
SELECT i.id, i.job_id, i.message_id, i.state, i.reason, i.received_at, i.ended_at, i.turn_id, i.payload, t.state,
    t.session_id, o.state, o.error, o.payload, j.zone
FROM inbox i LEFT JOIN jobs j ON j.id = i.job_id LEFT JOIN turns t ON t.id = i.turn_id
    LEFT JOIN outbox o ON o.dedup_key = CASE WHEN i.turn_id IS NULL THEN i.message_id ELSE 'answer:' || i.turn_id END

-- name: ledger
{occurrence}
WHERE i.job_id = ? AND i.id < ? ORDER BY i.id DESC LIMIT ?

-- name: ledger_of_person
-- Of jobs that exist.
{occurrence}
WHERE j.person_id = ? AND i.id < ? ORDER BY i.id DESC LIMIT ?

-- name: whole_ledger
{occurrence}
WHERE i.job_id IS NOT NULL AND i.id < ? ORDER BY i.id DESC LIMIT ?

-- name: wrote
-- What a chat got from jobs after a time, newest first; of runs that ended after another time.
SELECT j.name, o.ended_at, o.payload
FROM jobs j JOIN inbox i ON i.job_id = j.id
    JOIN outbox o ON o.dedup_key = CASE WHEN i.turn_id IS NULL THEN i.message_id ELSE 'answer:' || i.turn_id END
WHERE j.route = ? AND i.ended_at > ? AND i.state = 'answered' AND o.state = 'sent' AND o.ended_at > ?
ORDER BY i.id DESC LIMIT ?

-- name: last_turn
SELECT MAX(started_at) FROM turns WHERE conversation_id = ?

-- name: chat
-- The newest conversation of a chat, with its route; of one person, or of anybody.
SELECT s.session_key, s.origin_json FROM sessions s JOIN conversations c ON c.id = s.root_id
WHERE s.source = ? AND s.chat_id = ? AND s.session_key IS NOT NULL AND s.origin_json IS NOT NULL
    AND (CAST(? AS TEXT) IS NULL OR c.owner_id = ?) AND (CAST(? AS TEXT) IS NULL OR s.thread_id = ?)
ORDER BY s.started_at DESC LIMIT 1

-- name: has_route
-- Whether a conversation was ever opened by this route.
SELECT 1 FROM sessions WHERE source = ? AND session_key = ? LIMIT 1

-- name: private_chat
-- The newest private chat of a person, on one platform or on any.
SELECT s.session_key, s.origin_json FROM sessions s JOIN conversations c ON c.id = s.root_id
WHERE c.owner_id = ? AND s.chat_type = 'dm' AND s.chat_id IS NOT NULL AND s.session_key IS NOT NULL
    AND s.origin_json IS NOT NULL AND (CAST(? AS TEXT) IS NULL OR s.source = ?) AND s.source <> 'api_server'
ORDER BY s.started_at DESC LIMIT 1

-- name: prune
-- Not while an occurrence of it waits or runs.
DELETE FROM jobs WHERE id IN (
    SELECT j.id FROM jobs j WHERE j.state = 'done' AND j.changed_at < ? AND NOT EXISTS (
        SELECT 1 FROM inbox i WHERE i.job_id = j.id AND i.state IN ('queued', 'claimed'))
    LIMIT ?)

-- name: prune_scripts
DELETE FROM leases WHERE conversation_id LIKE ? AND (expires_at IS NULL OR expires_at < ?)
