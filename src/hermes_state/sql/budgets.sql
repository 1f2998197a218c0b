-- Spending limits: tallies, and running calls.

-- let: state
nano_usd, tokens, warned_nano_usd, warned_tokens

-- name: add
-- The row is locked until the transaction ends: the next writer, in any process, sees this sum.
UPDATE budget_tallies SET nano_usd = nano_usd + ?, tokens = tokens + ?, updated_at = ?
WHERE scope = ? AND subject = ? AND period = ?
RETURNING {state}

-- name: found
-- The first call of a period adds the earlier usage; a second one at the same moment only adds itself.
INSERT INTO budget_tallies AS t (scope, subject, period, nano_usd, tokens, updated_at)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (scope, subject, period) DO UPDATE SET
    nano_usd = t.nano_usd + ?, tokens = t.tokens + ?, updated_at = excluded.updated_at
RETURNING {state}

-- name: tally
SELECT {state} FROM budget_tallies WHERE scope = ? AND subject = ? AND period = ?

-- name: present
-- Tallies to which a call may still be added, in the order in which calls lock them.
SELECT scope, subject, period FROM budget_tallies t
WHERE scope <> 'conversation' AND updated_at > ?
    OR scope = 'conversation' AND EXISTS (
        SELECT 1 FROM sessions s WHERE s.root_id = t.subject AND s.last_active > t.updated_at
    )
ORDER BY CASE scope WHEN 'day' THEN 0 WHEN 'month' THEN 1 WHEN 'person_day' THEN 2 WHEN 'person_month' THEN 3 ELSE 4 END,
    subject

-- name: at_least
UPDATE budget_tallies SET
    nano_usd = CASE WHEN nano_usd < ? THEN ? ELSE nano_usd END,
    tokens = CASE WHEN tokens < ? THEN ? ELSE tokens END
WHERE scope = ? AND subject = ? AND period = ?

-- name: largest
-- Conversations by the usage that counts against their limit; one without a tally would begin with its past usage.
SELECT subject, nano_usd, tokens FROM budget_tallies WHERE scope = 'conversation'
UNION ALL
SELECT s.root_id, CAST(ROUND(SUM(u.estimated_cost_usd) * 1000000000) AS BIGINT), SUM(u.input_tokens + u.output_tokens)
FROM session_model_usage u JOIN sessions s ON s.id = u.session_id
WHERE NOT EXISTS (SELECT 1 FROM budget_tallies t WHERE t.scope = 'conversation' AND t.subject = s.root_id)
GROUP BY s.root_id
ORDER BY 2 DESC, 3 DESC, 1 LIMIT ?

-- name: spenders
-- Whose day it may be somewhere on earth: the caller knows their zones.
SELECT subject FROM budget_tallies WHERE scope = 'person_day' AND period >= ?
UNION SELECT person_id FROM usage_days WHERE day >= ? AND person_id <> ''

-- name: warned_usd
UPDATE budget_tallies SET warned_nano_usd = ? WHERE scope = ? AND subject = ? AND period = ?

-- name: warned_tokens
UPDATE budget_tallies SET warned_tokens = ? WHERE scope = ? AND subject = ? AND period = ?

-- name: hold
INSERT INTO budget_reservations (id, day, person_id, person_day, conversation_id, model, task, nano_usd, tokens, made_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: drop
-- The row's present columns name the tallies: its conversation may have been deleted or renamed.
DELETE FROM budget_reservations WHERE id = ?
RETURNING day, person_id, person_day, conversation_id, nano_usd, tokens

-- name: open
SELECT id, person_id, conversation_id, model, task, nano_usd, tokens, made_at FROM budget_reservations
ORDER BY made_at, id

-- name: reserved_day
SELECT SUM(nano_usd), SUM(tokens) FROM budget_reservations WHERE '' = ? AND day = ?

-- name: reserved_month
SELECT SUM(nano_usd), SUM(tokens) FROM budget_reservations WHERE '' = ? AND SUBSTR(day, 1, 7) = ?

-- name: reserved_person_month
SELECT SUM(nano_usd), SUM(tokens) FROM budget_reservations WHERE person_id = ? AND SUBSTR(person_day, 1, 7) = ?

-- name: reserved_person_day
SELECT SUM(nano_usd), SUM(tokens) FROM budget_reservations WHERE person_id = ? AND person_day = ?

-- name: reserved_conversation
SELECT SUM(nano_usd), SUM(tokens) FROM budget_reservations WHERE conversation_id = ? AND '' = ?

-- name: before_day
-- The usage before a limit was first set: calls are counted by day with or without a limit.
SELECT SUM(cost_usd), SUM(input_tokens + output_tokens) FROM usage_days WHERE '' = ? AND day = ?

-- name: before_month
SELECT SUM(cost_usd), SUM(input_tokens + output_tokens) FROM usage_days WHERE '' = ? AND SUBSTR(day, 1, 7) = ?

-- name: before_person_month
SELECT SUM(cost_usd), SUM(input_tokens + output_tokens) FROM usage_days WHERE person_id = ? AND SUBSTR(day, 1, 7) = ?

-- name: before_person_day
SELECT SUM(cost_usd), SUM(input_tokens + output_tokens) FROM usage_days WHERE person_id = ? AND day = ?

-- name: before_conversation
-- With what the conversation delegated.
WITH RECURSIVE below(id) AS (
    SELECT id FROM conversations WHERE id = ? UNION SELECT c.conversation_id FROM children c JOIN below b ON c.parent_id = b.id
)
SELECT SUM(u.estimated_cost_usd), SUM(u.input_tokens + u.output_tokens)
FROM session_model_usage u JOIN sessions s ON s.id = u.session_id WHERE s.root_id IN (SELECT id FROM below) AND '' = ?

-- name: forget_days
DELETE FROM budget_tallies WHERE scope <> 'conversation' AND updated_at < ?

-- name: forget_lost
-- Only the row is deleted: the tallies keep the estimate.
DELETE FROM budget_reservations WHERE made_at < ?
