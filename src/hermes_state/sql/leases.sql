-- Who may write to a conversation. `live` is the one definition of a held lease: it has a holder, it has not expired,
-- and its remaining time is at most its ttl. A longer remaining time means that the clock was set back: waiting for it
-- would freeze the conversation. One second of slack allows an ordinary correction of the clock.

-- let: live
l.holder IS NOT NULL AND l.expires_at > m.now AND l.expires_at - m.now <= l.ttl + 1

-- name: acquire
-- One statement: create the row, or take it over when it is free. `excluded.acquired_at` is the present time. A new row
-- starts above every fence of an erased conversation, so that a reused id cannot revive one.
INSERT INTO leases (conversation_id, fence, holder, acquired_at, expires_at, ttl)
VALUES (
    ?,
    1 + COALESCE((SELECT CAST(value AS BIGINT) FROM state_meta WHERE key = 'fence_floor'), 0),
    ?, {now}, {now} + ?, ?
)
ON CONFLICT (conversation_id) DO UPDATE SET
    fence = leases.fence + 1,
    holder = excluded.holder,
    acquired_at = excluded.acquired_at,
    expires_at = excluded.expires_at,
    ttl = excluded.ttl
WHERE leases.holder IS NULL
    OR leases.expires_at <= excluded.acquired_at
    OR leases.expires_at - excluded.acquired_at > leases.ttl + 1
RETURNING conversation_id, fence, holder, acquired_at, expires_at

-- name: renew
-- An expired lease stays lost; one whose clock was set back is corrected.
UPDATE leases SET expires_at = {now} + ?, ttl = ?
WHERE conversation_id = ? AND fence = ? AND holder IS NOT NULL AND expires_at > {now}
RETURNING conversation_id, fence, holder, acquired_at, expires_at

-- name: release
UPDATE leases SET holder = NULL, acquired_at = NULL, expires_at = NULL, ttl = NULL
WHERE conversation_id = ? AND fence = ? AND holder IS NOT NULL

-- name: release_holder
UPDATE leases SET holder = NULL, acquired_at = NULL, expires_at = NULL, ttl = NULL WHERE holder = ?

-- name: held
WITH m(now) AS (SELECT {now})
SELECT l.conversation_id, l.fence, l.holder, l.acquired_at, l.expires_at FROM leases l, m
WHERE l.conversation_id = ? AND {live}

-- name: check
-- A row when this fence may write now; locked, so that nobody takes the lease over before the caller's commit.
WITH m(now) AS (SELECT {now})
SELECT l.fence FROM leases l, m WHERE l.conversation_id = ? AND l.fence = ? AND {live} {lock}

-- name: hold_turn
-- The same for a turn: its row, and whether its fence may write now.
WITH m(now) AS (SELECT {now})
SELECT t.conversation_id, t.session_id, t.trace_id, t.attempt, t.state,
    CASE WHEN t.fence = ? AND l.fence = t.fence AND {live} THEN 1 ELSE 0 END
FROM m, turns t JOIN leases l ON l.conversation_id = t.conversation_id
WHERE t.id = ? {lock}

-- name: raise_floor
-- Before leases are erased: store the highest fence among them.
INSERT INTO state_meta (key, value)
SELECT 'fence_floor', CAST(MAX(fence) AS TEXT) FROM leases WHERE conversation_id IN {texts} HAVING MAX(fence) IS NOT NULL
ON CONFLICT (key) DO UPDATE SET value =
    CASE WHEN CAST(excluded.value AS BIGINT) > CAST(state_meta.value AS BIGINT) THEN excluded.value ELSE state_meta.value END

-- name: running_turn
-- Also one whose process died: it will be recovered. The expression makes the planner use the index of running turns.
SELECT id FROM turns WHERE state = 'running' AND conversation_id || '' = ? LIMIT 1
