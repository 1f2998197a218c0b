-- Search statements on the store itself. Those on the index are in search_index.sql.

-- name: visible
-- The given messages that a search may show. Every filter is here and nowhere else; NULL means no filter.
SELECT m.id, m.timestamp
FROM messages m JOIN sessions s ON s.id = m.session_id
WHERE m.id IN {numbers}
  AND m.replaced = 0 AND (m.active = 1 OR m.compacted = 1 OR ? = 1)
  AND (CAST(? AS TEXT) IS NULL OR s.source IN {texts})
  AND (CAST(? AS TEXT) IS NULL OR s.source NOT IN {texts})
  AND (CAST(? AS TEXT) IS NULL OR m.role IN {texts})
  AND (CAST(? AS TEXT) IS NULL OR s.root_id = ?)
  AND (CAST(? AS TEXT) IS NULL OR EXISTS (SELECT 1 FROM conversations c WHERE c.id = s.root_id AND c.owner_id = ?))
  AND m.timestamp BETWEEN ? AND ?

-- name: hidden
-- From a partial index of hidden rows only: an unfiltered search need not check its matches one by one. Deleted
-- messages that are still indexed stay hidden.
SELECT id, replaced FROM messages
WHERE ((active = 0 AND compacted = 0) OR replaced > 0) AND id BETWEEN ? AND ?
UNION ALL
SELECT message_id, 1 FROM search_forget WHERE message_id BETWEEN ? AND ?

-- name: of_conversation
-- From the index on (session_id, id) alone. One conversation or owner has few of all messages.
SELECT m.id FROM sessions s JOIN messages m ON m.session_id = s.id WHERE s.root_id = ? LIMIT ?

-- name: of_owner
SELECT m.id FROM conversations c JOIN sessions s ON s.root_id = c.id JOIN messages m ON m.session_id = s.id
WHERE c.owner_id = ? LIMIT ?

-- name: page
-- The hits, with their visible neighbours in the transcript.
SELECT m.id, m.session_id, m.role, m.timestamp, m.tool_name, s.source, s.model, s.started_at,
       m.content, m.content_kind, m.tool_calls, m.escaped,
       (SELECT max(p.id) FROM messages p WHERE p.session_id = m.session_id AND p.id < m.id
           AND p.replaced = 0 AND (p.active = 1 OR p.compacted = 1 OR ? = 1)),
       (SELECT min(n.id) FROM messages n WHERE n.session_id = m.session_id AND n.id > m.id
           AND n.replaced = 0 AND (n.active = 1 OR n.compacted = 1 OR ? = 1))
FROM messages m JOIN sessions s ON s.id = m.session_id
WHERE m.id IN {numbers}

-- name: beside
-- The visible messages right before and after each of the given ones.
SELECT m.id,
       (SELECT max(p.id) FROM messages p WHERE p.session_id = m.session_id AND p.id < m.id
           AND p.replaced = 0 AND (p.active = 1 OR p.compacted = 1 OR ? = 1)),
       (SELECT min(n.id) FROM messages n WHERE n.session_id = m.session_id AND n.id > m.id
           AND n.replaced = 0 AND (n.active = 1 OR n.compacted = 1 OR ? = 1))
FROM messages m WHERE m.id IN {numbers}

-- name: neighbours
-- Only the beginning of a long plain text is shown.
SELECT id, role, CASE WHEN content_kind = 'text' THEN substr(content, 1, 200) ELSE content END, content_kind
FROM messages WHERE id IN {numbers}

-- name: head @sqlite
-- The last assigned id, and a mark of the message at the index's position: a store that was restored to an older state
-- has another one there. Deleted messages have none.
SELECT COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'messages'), 0),
       (SELECT session_id || ' ' || timestamp FROM messages WHERE id = ?)

-- name: next @sqlite
-- The next messages for the index. The one writer assigns and commits ids in order, so none is skipped.
SELECT id, timestamp, session_id || ' ' || timestamp, content, content_kind, tool_name, tool_calls, escaped
FROM messages WHERE id > ? ORDER BY id LIMIT ?

-- name: next @postgresql
-- Ids do not commit in order there: only transactions below the oldest running one are all finished. The ORDER BY names
-- the table: a bare xid would be the output column, a text, in which 1000 sorts before 999.
SELECT id, timestamp, xid::text, content, content_kind, tool_name, tool_calls, escaped
FROM messages
WHERE (xid, id) > (?::text::xid8, ?) AND xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY messages.xid, messages.id LIMIT ?

-- name: tail @sqlite
SELECT id, content, content_kind, tool_name, tool_calls, escaped
FROM messages WHERE id > ? AND id < ? ORDER BY id DESC LIMIT ?

-- name: tail @postgresql
SELECT id, content, content_kind, tool_name, tool_calls, escaped
FROM messages WHERE (xid, id) > (?::text::xid8, ?) AND id < ? ORDER BY id DESC LIMIT ?

-- name: everything
-- The tail when there is no index.
SELECT id, content, content_kind, tool_name, tool_calls, escaped
FROM messages WHERE id < ? ORDER BY id DESC LIMIT ?

-- name: time_of
SELECT timestamp FROM messages WHERE id = ?

-- name: total
SELECT count(*) FROM messages

-- name: behind @sqlite
SELECT count(*) FROM messages WHERE id > ?

-- name: behind @postgresql
SELECT count(*) FROM messages WHERE (xid, id) > (?::text::xid8, ?)

-- name: to_forget
SELECT message_id FROM search_forget ORDER BY message_id LIMIT ?

-- name: forgotten
-- Only after the index has durably removed them; doing it twice is harmless.
DELETE FROM search_forget WHERE message_id IN {numbers}
