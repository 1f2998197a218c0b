-- Single sessions, out and in.

-- name: set_rest
-- What `sessions.insert` leaves to the session's life.
UPDATE sessions SET
    ended_at = ?, end_reason = ?, input_tokens = ?, output_tokens = ?, cache_read_tokens = ?, cache_write_tokens = ?,
    reasoning_tokens = ?, api_call_count = ?, estimated_cost_usd = ?, actual_cost_usd = ?, cost_status = ?,
    cost_source = ?, pricing_version = ?, billing_provider = ?, billing_base_url = ?, billing_mode = ?, rewind_count = ?
WHERE id = ?

-- name: row_ids
SELECT id FROM messages WHERE session_id = ? ORDER BY id

-- name: hide
UPDATE messages SET active = 0, compacted = ? WHERE id IN {numbers}

-- name: set_owner
-- Whoever imports it has it.
UPDATE conversations SET owner_id = ? WHERE id IN {texts}
