-- Search, asked of the store itself. What is asked of the index is in search_index.sql.

-- name: visible
-- Which of the given messages a search may show. Every filter stands here and nowhere else; NULL means no filter.
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
-- From a partial index that holds nothing else: an unfiltered search need not look at its matches one by one. Deleted
-- messages that the index still has are hidden for good.
SELECT id, replaced FROM messages
WHERE ((active = 0 AND compacted = 0) OR replaced > 0) AND id BETWEEN ? AND ?
UNION ALL
SELECT message_id, 1 FROM search_forget WHERE message_id BETWEEN ? AND ?

-- name: of_conversation
-- From the index on (session_id, id) alone. A conversation's or an owner's messages are few beside everybody's.
SELECT m.id FROM sessions s JOIN messages m ON m.session_id = s.id WHERE s.root_id = ? LIMIT ?

-- name: of_owner
SELECT m.id FROM conversations c JOIN sessions s ON s.root_id = c.id JOIN messages m ON m.session_id = s.id
WHERE c.owner_id = ? LIMIT ?

-- name: page
-- The hits themselves, with their neighbours in the transcript that a search may show.
SELECT m.id, m.session_id, m.role, m.timestamp, m.tool_name, s.source, s.model, s.started_at,
       m.content, m.content_kind, m.tool_calls, m.escaped,
       (SELECT max(p.id) FROM messages p WHERE p.session_id = m.session_id AND p.id < m.id
           AND p.replaced = 0 AND (p.active = 1 OR p.compacted = 1 OR ? = 1)),
       (SELECT min(n.id) FROM messages n WHERE n.session_id = m.session_id AND n.id > m.id
           AND n.replaced = 0 AND (n.active = 1 OR n.compacted = 1 OR ? = 1))
FROM messages m JOIN sessions s ON s.id = m.session_id
WHERE m.id IN {numbers}

-- name: beside
-- The messages right before and after each of the given ones that a search may show.
SELECT m.id,
       (SELECT max(p.id) FROM messages p WHERE p.session_id = m.session_id AND p.id < m.id
           AND p.replaced = 0 AND (p.active = 1 OR p.compacted = 1 OR ? = 1)),
       (SELECT min(n.id) FROM messages n WHERE n.session_id = m.session_id AND n.id > m.id
           AND n.replaced = 0 AND (n.active = 1 OR n.compacted = 1 OR ? = 1))
FROM messages m WHERE m.id IN {numbers}

-- name: neighbours
-- Of a long plain text only the beginning is shown.
SELECT id, role, CASE WHEN content_kind = 'text' THEN substr(content, 1, 200) ELSE content END, content_kind
FROM messages WHERE id IN {numbers}

-- name: head @sqlite
-- The last id ever given out, and a mark of the message at the index's position: a store that was put back to an older
-- state has another one there. Deleted messages leave none.
SELECT COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'messages'), 0),
       (SELECT session_id || ' ' || timestamp FROM messages WHERE id = ?)

-- name: next @sqlite
-- What the index takes in next. Ids are given out and committed in order by the one writer, so none is skipped.
SELECT id, timestamp, session_id || ' ' || timestamp, content, content_kind, tool_name, tool_calls, escaped
FROM messages WHERE id > ? ORDER BY id LIMIT ?

-- name: next @postgresql
-- Ids do not commit in order there: only transactions below the horizon are all finished, and none can join them.
-- The table is named in the order: a bare xid would be the text beside it, of which 1000 comes before 999.
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
-- Only after the index has let go of them for good; to do it twice is harmless.
DELETE FROM search_forget WHERE message_id IN {numbers}
