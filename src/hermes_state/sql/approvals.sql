-- Questions about one exact call, the grants of their answers, and the log of calls that left the sandbox.

-- name: ask
-- The same call of the same turn is one question, also after a restart.
INSERT INTO approvals (id, conversation_id, turn_id, call_hash, call, requester_id, approver_id, state, created_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, 'pending', ?, ?)
ON CONFLICT (turn_id, call_hash) DO NOTHING

-- name: put_aside
-- A used permission is no answer: the same call later in the turn is a new question.
UPDATE approvals SET call_hash = call_hash || '#' || id WHERE turn_id = ? AND call_hash = ? AND state = 'used'

-- name: of_call
SELECT {columns} FROM approvals WHERE turn_id = ? AND call_hash = ?

-- name: of_turn
SELECT {columns} FROM approvals WHERE turn_id = ? ORDER BY created_at, id

-- name: get
SELECT {columns} FROM approvals WHERE id = ?

-- name: decide
UPDATE approvals SET state = ?, scope = ?, approver_id = ?, reason = ?, decided_at = ? WHERE id = ? AND state = 'pending'

-- name: served
UPDATE approvals SET state = 'used', used_at = ? WHERE id IN {texts} AND state = 'granted'

-- name: pending
SELECT {columns} FROM approvals WHERE state = 'pending' AND expires_at > ? ORDER BY created_at, id LIMIT ?

-- name: lapse
UPDATE approvals SET state = 'lapsed', reason = 'nobody answered in time', decided_at = ?
WHERE state = 'pending' AND expires_at <= ?
RETURNING {columns}

-- name: revoke
UPDATE approvals SET state = 'revoked', reason = ?, decided_at = ? WHERE id = ? AND state IN ('pending', 'granted')

-- name: withdraw
UPDATE approvals SET state = 'revoked', reason = ?, decided_at = ? WHERE id = ? AND state = 'pending'

-- name: prune
DELETE FROM approvals WHERE id IN (SELECT id FROM approvals WHERE decided_at < ? LIMIT ?)

-- name: grant
INSERT INTO grants ({grant_columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'live', NULL, ?, NULL)

-- name: usable
-- Active grants that may cover a call, of this person (for an unknown person: of this turn). The last parameter is the
-- exact call.
SELECT {grant_columns} FROM grants
WHERE state = 'live' AND (person_id = ? OR (person_id IS NULL AND turn_id = ?)) AND (expires_at IS NULL OR expires_at > ?)
    AND (span = 'always' OR (span = 'conversation' AND conversation_id = ?)
        OR (span = 'task' AND turn_id = ?
            AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.id = grants.turn_id AND turns.ended_at IS NOT NULL)))
    AND (kind <> 'exact' OR value = ?)
ORDER BY created_at, id {lock}

-- name: use
UPDATE grants SET uses_left = uses_left - 1, state = CASE WHEN uses_left = 1 THEN 'used' ELSE state END,
    ended_at = CASE WHEN uses_left = 1 THEN ? ELSE ended_at END
WHERE id IN {texts} AND uses_left IS NOT NULL

-- name: live
-- Every active grant.
SELECT {grant_columns} FROM grants
WHERE state = 'live' AND (expires_at IS NULL OR expires_at > ?)
    AND (span <> 'task' OR EXISTS (SELECT 1 FROM turns WHERE turns.id = grants.turn_id AND turns.ended_at IS NULL))
ORDER BY created_at, id

-- name: end_grant
UPDATE grants SET state = 'revoked', reason = ?, ended_at = ? WHERE id = ? AND state = 'live'

-- name: end_grants_of
UPDATE grants SET state = 'revoked', reason = ?, ended_at = ? WHERE approval_id = ? AND state = 'live'

-- name: end_conversation
UPDATE grants SET state = 'revoked', reason = ?, ended_at = ?
WHERE state = 'live' AND span = 'conversation' AND conversation_id = ? AND person_id = ?

-- name: unapprove
-- A question whose permission was revoked before its first use.
UPDATE approvals SET state = 'revoked', reason = ?, decided_at = ?
WHERE id = (SELECT approval_id FROM grants WHERE id = ?) AND state = 'granted'

-- name: prune_grants
-- Active grants stay until they are revoked, used up or expired; a task's end with its turn.
DELETE FROM grants WHERE id IN (
    SELECT id FROM grants
    WHERE ended_at < ? OR expires_at < ?
        OR (span = 'task' AND created_at < ?
            AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.id = grants.turn_id AND turns.ended_at IS NULL))
    LIMIT ?
)

-- name: log
INSERT INTO wall_exits (at, person_id, conversation_id, turn_id, kind, text, workdir, opening, digest, allowed_by, grants, rule)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: exits
SELECT {exit_columns} FROM wall_exits ORDER BY id DESC LIMIT ?

-- name: exits_of_turn
SELECT {exit_columns} FROM wall_exits WHERE conversation_id = ? AND turn_id = ? ORDER BY id

-- name: named_grants
SELECT {grant_columns} FROM grants WHERE id IN {texts}

-- name: prune_exits
DELETE FROM wall_exits WHERE id IN (SELECT id FROM wall_exits WHERE at < ? LIMIT ?)
