-- The event log of each conversation, bounded.

-- name: append
-- `seq` counts within the conversation, so that trimming needs no count.
INSERT INTO events (conversation_id, seq, kind, turn_id, trace_id, detail, at)
VALUES (?, 1 + COALESCE((SELECT MAX(seq) FROM events WHERE conversation_id = ?), 0), ?, ?, ?, ?, ?)
RETURNING seq

-- name: trim
DELETE FROM events WHERE conversation_id = ? AND seq <= ?

-- name: overfull
-- Conversations above the limit: it was lowered, or two machines wrote at once.
SELECT conversation_id, MAX(seq) FROM events GROUP BY conversation_id HAVING COUNT(*) > ?

-- name: since
-- On SQLite ids are in commit order, and the first half of a cursor is always 0.
SELECT 0, {columns} FROM events WHERE id > ? AND id > ? ORDER BY id LIMIT ?

-- name: since @postgresql
-- PostgreSQL assigns ids before the commit, so a row may appear below one that was already read. Only rows of
-- transactions older than every running one are final; in the order (xid, id) none appears in between. The ORDER BY
-- names the table: a bare xid would be the output column, a text, in which 1000 sorts before 999.
SELECT xid::text, {columns} FROM events
WHERE (xid, id) > (?::text::xid8, ?) AND xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY events.xid, events.id LIMIT ?

-- name: since_in
SELECT 0, {columns} FROM events WHERE conversation_id = ? AND id > ? AND id > ? ORDER BY id LIMIT ?

-- name: since_in @postgresql
SELECT xid::text, {columns} FROM events
WHERE conversation_id = ? AND (xid, id) > (?::text::xid8, ?) AND xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY events.xid, events.id LIMIT ?

-- name: of_turn
SELECT {columns} FROM events WHERE conversation_id = ? AND turn_id = ? ORDER BY seq

-- name: last
-- The newest committed rows of a conversation.
SELECT {columns} FROM events WHERE conversation_id = ? ORDER BY seq DESC, id DESC LIMIT ?

-- The history of one message, from every table with its trace id. The first column is when it began there, the last
-- when it ended there.

-- name: inbox
SELECT received_at, id, platform, chat_id, message_id, version, turn_id, state, reason, ended_at
FROM inbox WHERE trace_id = ? ORDER BY id

-- name: turn_traces
-- The traces of other messages whose turns took this one along.
SELECT DISTINCT t.trace_id FROM inbox i JOIN turns t ON t.id = i.turn_id WHERE i.trace_id = ? AND t.trace_id <> i.trace_id

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
-- All but a turn's begin event, which the index leaves out.
SELECT at, id, conversation_id, turn_id, kind, detail FROM events WHERE trace_id = ? AND kind <> 'turn.begun' ORDER BY id

-- name: begun
SELECT at, id, conversation_id, turn_id, kind, detail FROM events
WHERE conversation_id = ? AND turn_id = ? AND trace_id = ? AND kind = 'turn.begun'

-- name: last_trace
-- A child's task is a part of another message.
SELECT trace_id FROM inbox WHERE state <> 'refused' AND message_id NOT LIKE 'hermes:child:%' ORDER BY id DESC LIMIT 1
