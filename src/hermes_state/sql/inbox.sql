-- Received messages. `id` is the order of a route; `state` only moves forward, and a terminal one never changes.

-- name: accept
-- Before the platform gets its acknowledgement. A redelivery finds its key taken.
INSERT INTO inbox (platform, account, chat_id, message_id, version, route, person_id, trace_id, payload, state, received_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'queued', ?)
ON CONFLICT (platform, account, chat_id, message_id, version) DO NOTHING
RETURNING id

-- name: refuse
-- Only the key and the reason, and a limited number per minute: a stranger must not be able to fill the disk.
INSERT INTO inbox (platform, account, chat_id, message_id, version, trace_id, state, reason, received_at, ended_at)
VALUES (?, ?, ?, ?, ?, ?, 'refused', ?, ?, ?)
ON CONFLICT (platform, account, chat_id, message_id, version) DO NOTHING
RETURNING id

-- name: nth_refusal
-- When the n-th newest refusal came.
SELECT received_at FROM inbox WHERE state = 'refused' ORDER BY id DESC LIMIT 1 OFFSET ?

-- name: trim_refused
DELETE FROM inbox WHERE state = 'refused'
    AND id <= (SELECT id FROM inbox WHERE state = 'refused' ORDER BY id DESC LIMIT 1 OFFSET ?)

-- name: find
SELECT {columns} FROM inbox
WHERE platform = ? AND account = ? AND chat_id = ? AND message_id = ? AND version = ?

-- name: versions
SELECT {columns} FROM inbox
WHERE platform = ? AND account = ? AND chat_id = ? AND message_id = ? ORDER BY version

-- name: other_versions
-- Other versions of the message that was just stored; nearly always none. Refused versions do not count.
SELECT {columns} FROM inbox
WHERE platform = ? AND account = ? AND chat_id = ? AND message_id = ? AND version <> ? AND state <> 'refused'
ORDER BY version

-- name: get
SELECT {columns} FROM inbox WHERE id = ?

-- name: last_id
SELECT COALESCE(MAX(id), 0) FROM inbox

-- name: of_turn
SELECT {columns} FROM inbox WHERE turn_id = ? ORDER BY id

-- name: of_trace
SELECT {columns} FROM inbox WHERE trace_id = ? ORDER BY id

-- name: claim
-- The oldest of a route first. The locks keep two claimers of one database apart.
UPDATE inbox SET state = 'claimed', turn_id = ?
WHERE id IN (SELECT id FROM inbox WHERE route = ? AND state = 'queued' ORDER BY id LIMIT ? {lock})
RETURNING {columns}

-- name: claim_ids
UPDATE inbox SET state = 'claimed', turn_id = ?
WHERE id IN {numbers} AND route = ? AND state = 'queued'
RETURNING {columns}

-- name: take_command
UPDATE inbox SET state = 'claimed', reason = ? WHERE id = ? AND state = 'queued'

-- name: end_command
UPDATE inbox SET state = ?, reason = ?, ended_at = ? WHERE id = ? AND state = 'claimed' AND turn_id IS NULL

-- name: cut_off_commands
SELECT {columns} FROM inbox WHERE state = 'claimed' AND turn_id IS NULL ORDER BY id

-- name: queued
SELECT {columns} FROM inbox WHERE state = 'queued' AND route = ? AND id > ? ORDER BY id LIMIT ?

-- name: waiting_between
-- Without prompts that a terminal stored for itself (`inbox.local_route`); other counts for a gateway exclude them too.
-- The expression makes the planner use the small index of queued rows instead of reading the table by id.
SELECT id FROM inbox WHERE state = 'queued' AND route NOT LIKE 'local:%' AND received_at > ? AND received_at <= ?
ORDER BY id + 0 LIMIT ?

-- name: without_platform
-- Messages typed at a terminal for a chat that a gateway serves (`inbox.BESIDE`), and rows of Hermes itself (`OWN`).
SELECT {columns} FROM inbox
WHERE state = 'queued' AND (message_id LIKE 'beside:%' OR message_id LIKE 'hermes:%') AND route NOT LIKE 'local:%'
ORDER BY id + 0 LIMIT ?

-- name: finish_queued
UPDATE inbox SET state = ?, reason = ?, ended_at = ? WHERE id IN {numbers} AND state = 'queued'

-- name: finish_turn
-- All rows of a turn get its outcome.
UPDATE inbox SET state = ?, reason = ?, ended_at = ? WHERE turn_id = ? AND state = 'claimed'

-- name: routes_waiting
-- Routes with queued rows, the longest waiting first.
SELECT route, COUNT(*), MIN(id) FROM inbox WHERE state = 'queued' AND route NOT LIKE 'local:%'
GROUP BY route ORDER BY MIN(id) LIMIT ?

-- name: oldest
SELECT MIN(received_at) FROM inbox WHERE state = 'queued' AND route NOT LIKE 'local:%'

-- name: list
SELECT {columns} FROM inbox
WHERE (CAST(? AS TEXT) IS NULL OR state = ?) AND (CAST(? AS TEXT) IS NULL OR route = ?) AND id < ?
ORDER BY id DESC LIMIT ?

-- name: counts
SELECT state, COUNT(*) FROM inbox GROUP BY state

-- name: queued_count
SELECT COUNT(*) FROM inbox WHERE state = 'queued' AND route NOT LIKE 'local:%'

-- name: with_attachments
-- Also claimed ones: a turn that continues after a crash reads them again.
SELECT payload FROM inbox WHERE state IN ('queued', 'claimed') AND payload LIKE '%"attachments"%'

-- name: prune
DELETE FROM inbox WHERE id IN (SELECT id FROM inbox WHERE ended_at < ? LIMIT ?)
