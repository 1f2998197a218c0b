-- The life of one message, from every table that knows its trace id. The first column is when it began there, the
-- last when it ended there.

-- name: inbox
SELECT received_at, id, platform, chat_id, message_id, version, turn_id, state, reason, ended_at
FROM inbox WHERE trace_id = ? ORDER BY id

-- name: turns
SELECT started_at, id, conversation_id, session_id, attempt, state, reason, ended_at
FROM turns WHERE trace_id = ? ORDER BY started_at, id

-- name: effects
SELECT e.started_at, e.call_id AS id, e.turn_id, e.tool, e.attempt, e.result,
    CASE WHEN e.finished_at IS NULL THEN 'started' ELSE 'finished' END AS state, e.finished_at
FROM effects e JOIN turns t ON t.id = e.turn_id WHERE t.trace_id = ? ORDER BY e.started_at, e.call_id

-- name: approvals
SELECT a.created_at, a.id, a.turn_id, a.call, a.expires_at, a.scope, a.reason, a.state, a.decided_at
FROM approvals a JOIN turns t ON t.id = a.turn_id WHERE t.trace_id = ? ORDER BY a.created_at, a.id

-- name: outbox
SELECT created_at, id, turn_id, platform, chat_id, state, attempts, platform_ids, error, ended_at
FROM outbox WHERE trace_id = ? ORDER BY id

-- name: events
-- All but that a turn has begun, which the index leaves out.
SELECT at, id, conversation_id, turn_id, kind, detail FROM events WHERE trace_id = ? AND kind <> 'turn.begun' ORDER BY id

-- name: begun
SELECT at, id, conversation_id, turn_id, kind, detail FROM events
WHERE conversation_id = ? AND turn_id = ? AND trace_id = ? AND kind = 'turn.begun'

-- name: last
SELECT trace_id FROM inbox WHERE state <> 'refused' ORDER BY id DESC LIMIT 1
