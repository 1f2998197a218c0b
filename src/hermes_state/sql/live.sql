-- What a running conversation asks the store: is the transcript still the one I know, and what was added?

-- name: state
-- The newest live row below an id is found from the end of the index, however long the transcript is.
SELECT s.message_count, COALESCE(s.rewind_count, 0), COALESCE(
    (SELECT m.id FROM messages m WHERE m.session_id = s.id AND m.active = 1 AND m.id < ? ORDER BY m.id DESC LIMIT 1), 0
), CASE WHEN s.end_reason IN ('compression', 'uncompressed') THEN 1 ELSE 0 END
FROM sessions s WHERE s.id = ?

-- name: rows
-- As `conversation` of messages.sql, with the turn and the id last.
SELECT role, content, content_kind, tool_calls, timestamp, tool_call_id, tool_name, effect_disposition, api_content,
    platform_message_id, observed, finish_reason, reasoning, reasoning_content, reasoning_details,
    codex_reasoning_items, codex_message_items, escaped, turn_id, id
FROM messages
WHERE session_id = ? AND replaced = 0 AND active = 1 AND id > ?
ORDER BY id

-- name: said_in_turn
-- As `rows`: what was said to a turn first. Once for a turn that somebody looks at, so a walk over the segment will do.
SELECT role, content, content_kind, tool_calls, timestamp, tool_call_id, tool_name, effect_disposition, api_content,
    platform_message_id, observed, finish_reason, reasoning, reasoning_content, reasoning_details,
    codex_reasoning_items, codex_message_items, escaped
FROM messages
WHERE session_id = ? AND turn_id = ? AND role = 'user' AND replaced = 0 AND id > ?
ORDER BY id LIMIT 1
