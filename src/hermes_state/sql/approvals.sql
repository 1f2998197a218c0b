-- Questions about one exact call, and the rules that answers leave behind.

-- let: columns
id, conversation_id, turn_id, call_hash, call, requester_id, approver_id, state, scope, reason, created_at, expires_at,
    rule_expires_at, decided_at, used_at

-- name: ask
-- The same call of the same turn is one question, also after a restart.
INSERT INTO approvals (id, conversation_id, turn_id, call_hash, call, requester_id, approver_id, state, created_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, 'pending', ?, ?)
ON CONFLICT (turn_id, call_hash) DO NOTHING

-- name: put_aside
-- Leave that was used up answers nothing any more: the same call later in the turn is a new question.
UPDATE approvals SET call_hash = call_hash || '#' || id WHERE turn_id = ? AND call_hash = ? AND state = 'used'

-- name: of_call
SELECT {columns} FROM approvals WHERE turn_id = ? AND call_hash = ?

-- name: of_turn
SELECT {columns} FROM approvals WHERE turn_id = ? ORDER BY created_at, id

-- name: get
SELECT {columns} FROM approvals WHERE id = ?

-- name: lock
SELECT {columns} FROM approvals WHERE id = ? {lock}

-- name: decide
UPDATE approvals SET state = ?, scope = ?, approver_id = ?, reason = ?, rule_expires_at = ?, decided_at = ?
WHERE id = ? AND state = 'pending'

-- name: spend_once
-- A grant for once serves one time, for the turn and the call it was given for.
UPDATE approvals SET state = 'used', used_at = ?
WHERE turn_id = ? AND call_hash = ? AND conversation_id = ? AND state = 'granted' AND scope = 'once'
RETURNING {columns}

-- name: standing
-- A standing rule for this person and exactly this call: in this conversation, or always.
SELECT {columns} FROM approvals
WHERE state = 'granted' AND scope IN ('session', 'always') AND call_hash = ? AND requester_id = ?
    AND (scope = 'always' OR conversation_id = ?) AND (rule_expires_at IS NULL OR rule_expires_at > ?)
ORDER BY decided_at DESC LIMIT 1

-- name: rules
SELECT {columns} FROM approvals
WHERE state = 'granted' AND scope IN ('session', 'always') AND requester_id = ?
    AND (rule_expires_at IS NULL OR rule_expires_at > ?)
ORDER BY decided_at, id

-- name: pending
SELECT {columns} FROM approvals WHERE state = 'pending' AND expires_at > ? ORDER BY created_at, id LIMIT ?

-- name: lapse
UPDATE approvals SET state = 'lapsed', reason = 'nobody answered in time', decided_at = ?
WHERE state = 'pending' AND expires_at <= ?
RETURNING {columns}

-- name: revoke
UPDATE approvals SET state = 'revoked', reason = ?, decided_at = ? WHERE id = ? AND state IN ('pending', 'granted')

-- name: prune
-- Standing rules stay until they are revoked or run out.
DELETE FROM approvals WHERE id IN (
    SELECT id FROM approvals
    WHERE decided_at < ? AND (
        state <> 'granted' OR scope = 'once' OR rule_expires_at < ?
    )
    LIMIT ?
)
