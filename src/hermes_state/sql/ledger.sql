-- Routes, and the moves of whole conversations. Each verb of the ledger is one transaction over these.

-- name: close_parent
-- Its title goes on to the continuation, which needs it free.
UPDATE sessions SET ended_at = ?, end_reason = 'compression', title = NULL WHERE id = ?

-- name: keep_preview
-- What the conversation began with, not the summary that the continuation begins with.
UPDATE sessions SET preview = COALESCE(?, preview) WHERE id = ?

-- name: rotated
UPDATE conversations SET tip_id = ?, rotations = rotations + 1 WHERE id = ?

-- name: live_head
SELECT max(id) FROM messages WHERE session_id = ? AND active = 1

-- name: owner
SELECT owner_id FROM conversations WHERE id = ?

-- name: live_rows
SELECT role, tool_calls, timestamp FROM messages WHERE session_id = ? AND active = 1

-- name: set_copied
UPDATE sessions SET message_count = ?, tool_call_count = ?, last_active = ? WHERE id = ?

-- name: carried
-- What a compression wrote to its child: how many rows, and the last of them.
SELECT count(*), COALESCE(max(id), 0) FROM messages WHERE session_id = ? AND active = 1

-- name: still_carried
SELECT count(*) FROM messages WHERE session_id = ? AND active = 1 AND id <= ?

-- name: live_after
SELECT role, tool_calls, timestamp FROM messages WHERE session_id = ? AND active = 1 AND id > ?

-- name: running_turn
-- Also one whose process is gone: it will be taken up, in the segment it knows.
SELECT 1 FROM turns WHERE conversation_id = ? AND state = 'running' LIMIT 1

-- name: set_aside
-- Its title goes back to the parent, which needs it free.
UPDATE sessions SET ended_at = ?, end_reason = 'uncompressed', title = NULL WHERE id = ?

-- name: set_aside_messages
UPDATE messages SET active = 0 WHERE session_id = ? AND active = 1

-- name: go_on
-- As the child had it last; its count of rewinds grows, so that agents that keep the transcript look again.
UPDATE sessions SET
    model = ?, model_config = ?, system_prompt = ?, cwd = ?, git_branch = ?, git_repo_root = ?, session_key = ?,
    display_name = ?, origin_json = ?, title = ?, ended_at = ?, end_reason = ?,
    message_count = message_count + ?, tool_call_count = tool_call_count + ?,
    last_active = {greatest}(last_active, ?), rewind_count = rewind_count + 1,
    compression_failure_cooldown_until = ?, compression_failure_error = ?
WHERE id = ?

-- name: count_uncompressed
UPDATE conversations SET tip_id = ?, rotations = rotations - 1 WHERE id = ?

-- name: forget_carried
DELETE FROM state_meta WHERE key = ?
