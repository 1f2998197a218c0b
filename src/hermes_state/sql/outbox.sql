-- Messages for chats. `attempts` grows with every claim and is the fence of its sender: a report that names an older
-- attempt changes nothing.

-- let: item_columns
dedup_key, platform, account, chat_id, conversation_id, turn_id, trace_id, payload, state, give_up_after

-- let: same_chat
(outbox.platform, outbox.account, outbox.chat_id) = (excluded.platform, excluded.account, excluded.chat_id)

-- let: first_of_its_chat
o.id = (
    SELECT MIN(e.id) FROM outbox e
    WHERE e.platform = o.platform AND e.account = o.account AND e.chat_id = o.chat_id
        AND e.state IN ('pending', 'sending')
)

-- let: being_sent
-- Some of the few open items are being sent. The condition repeats the words of the index, which SQLite looks for.
state IN ('pending', 'sending') AND state = 'sending'

-- name: enqueue
-- To be delivered, and due at once (0) whatever happens to the clock. The same key again changes nothing, unless it was
-- a draft. A draft in another chat does not count: the message is sent again in the right one.
INSERT INTO outbox ({item_columns}, next_attempt_at, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'pending', ?, 0, {now})
ON CONFLICT (dedup_key) DO UPDATE SET payload = excluded.payload, state = 'pending', next_attempt_at = 0,
    platform = excluded.platform, account = excluded.account, chat_id = excluded.chat_id,
    platform_ids = CASE WHEN {same_chat} THEN outbox.platform_ids ELSE '[]' END,
    draft = CASE WHEN {same_chat} THEN outbox.draft END
WHERE outbox.state = 'draft'
RETURNING {columns}

-- name: enqueue_held
-- To be decided about by the owner. A draft that the chat shows already can no longer be held back.
INSERT INTO outbox ({item_columns}, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'held', ?, {now})
ON CONFLICT (dedup_key) DO UPDATE SET payload = excluded.payload,
    state = CASE WHEN outbox.platform_ids = '[]' THEN 'held' ELSE 'pending' END,
    next_attempt_at = CASE WHEN outbox.platform_ids = '[]' THEN NULL ELSE 0 END,
    draft = CASE WHEN outbox.platform_ids = '[]' THEN NULL ELSE outbox.draft END
WHERE outbox.state = 'draft'
RETURNING {columns}

-- name: draft
INSERT INTO outbox ({item_columns}, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'draft', ?, {now})
ON CONFLICT (dedup_key) DO NOTHING
RETURNING {columns}

-- name: may_show
-- A draft may begin: nothing older of its chat is pending, and its turn has not ended meanwhile.
SELECT 1
WHERE NOT EXISTS (
        SELECT 1 FROM outbox WHERE platform = ? AND account = ? AND chat_id = ? AND state IN ('pending', 'sending')
    ) AND NOT EXISTS (SELECT 1 FROM turns WHERE id = ? AND state <> 'running')

-- name: by_key
SELECT {columns} FROM outbox WHERE dedup_key = ?

-- name: beginning_with
SELECT {columns} FROM outbox WHERE substr(dedup_key, 1, ?) = ? ORDER BY id

-- name: said_since
-- Messages in the chat below an item, and messages received after one row and before another. By ids: rows of the two
-- tables have the times of two clocks. Words for a question, and the replies to them, do not count.
SELECT 1
WHERE EXISTS (
        SELECT 1 FROM outbox o
        WHERE o.id > ? AND o.platform = ? AND o.account = ? AND o.chat_id = ? AND o.dedup_key <> ?
            AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.trace_id = o.trace_id AND i.reason = ?)
    ) OR EXISTS (
        SELECT 1 FROM inbox
        WHERE platform = ? AND account = ? AND chat_id = ? AND id > ? AND id < ? AND COALESCE(reason, '') <> ?
    )

-- name: get
SELECT {columns} FROM outbox WHERE id = ?

-- let: due
-- Due, and the first unfinished item of its chat. A due time further away than the longest delay means that the clock
-- was set back. The order between chats does not matter; this is the index's.
SELECT o.id FROM outbox o
    WHERE o.state = 'pending' AND (o.next_attempt_at <= {now} OR o.next_attempt_at > {now} + ?)
        AND (CAST(? AS TEXT) IS NULL OR o.platform IN {texts}) AND {first_of_its_chat}
    ORDER BY o.next_attempt_at LIMIT ?

-- name: claim_due
-- Two deliverers never get the same row: the second one skips rows that the first has locked.
UPDATE outbox SET state = 'sending', attempts = attempts + 1, sender = ?, sending_until = {now} + ?, error = NULL
WHERE id IN ({due} {lock_free})
RETURNING {columns}

-- name: claim_new
-- Claim an item for a sender that already waits for it. The chat's order holds, except between two items that two
-- processes of one PostgreSQL create at the same moment: they do not see each other.
UPDATE outbox AS o SET state = 'sending', attempts = attempts + 1, sender = ?, sending_until = {now} + ?
WHERE id = ? AND state = 'pending' AND {first_of_its_chat}
RETURNING {columns}

-- name: next_due
-- Without platforms: of any item. With them: of the first item of each chat that a deliverer of these could claim.
SELECT MIN(o.next_attempt_at) FROM outbox o
WHERE o.state = 'pending' AND (CAST(? AS TEXT) IS NULL OR (o.platform IN {texts} AND {first_of_its_chat}))

-- name: progress
-- The part that the chat shows so far; a sender that reports gets more time.
UPDATE outbox SET platform_ids = ?, draft = COALESCE(?, draft),
    sending_until = CASE WHEN state = 'sending' THEN {now} + ? ELSE NULL END
WHERE id = ? AND attempts = ? AND state IN ('draft', 'sending')

-- name: sent
-- Also after the deadline: the sender knows better.
UPDATE outbox SET state = 'sent', platform_ids = ?, draft = ?, error = NULL, sending_until = NULL, ended_at = {now}
WHERE id = ? AND attempts = ? AND state IN ('sending', 'unknown')

-- name: put_off
-- An attempt that does not count (1) allows one more. The right side of a SET has the old values.
UPDATE outbox SET error = ?, draft = COALESCE(?, draft), sending_until = NULL, give_up_after = give_up_after + ?,
    state = CASE WHEN attempts >= give_up_after + ? THEN 'failed' ELSE 'pending' END,
    next_attempt_at = CASE WHEN attempts >= give_up_after + ? THEN NULL ELSE {now} + ? END,
    ended_at = CASE WHEN attempts >= give_up_after + ? THEN {now} END
WHERE id = ? AND attempts = ? AND state = 'sending'
RETURNING {columns}

-- name: clock_was_set_back
-- By so many seconds: postponed items wait that much less.
UPDATE outbox SET next_attempt_at = next_attempt_at - ? WHERE state = 'pending' AND next_attempt_at > {now}

-- name: close
-- failed or unknown
UPDATE outbox SET state = ?, error = ?, draft = COALESCE(?, draft), sending_until = NULL, ended_at = {now}
WHERE id = ? AND attempts = ? AND state = 'sending'
RETURNING {columns}

-- name: lose_senders
-- The sender did not report in time, or is known to be dead: the chat's content is unknown.
UPDATE outbox SET state = 'unknown', error = ?, sending_until = NULL, ended_at = {now}
WHERE {being_sent} AND (sending_until <= {now} OR sending_until > {now} + ? OR sender = ?)
RETURNING {columns}

-- name: of_sender
-- Called often. The expression makes the planner use the index of items being sent instead of reading the table.
SELECT {columns} FROM outbox WHERE {being_sent} AND sender = ? ORDER BY id + 0

-- name: senders
SELECT DISTINCT sender FROM outbox WHERE {being_sent} AND sender IS NOT NULL

-- name: go_on
-- Its sender is dead; the note says what may have arrived.
UPDATE outbox SET state = 'pending', draft = ?, give_up_after = give_up_after + ?, next_attempt_at = 0, ended_at = NULL
WHERE id = ? AND state = 'unknown'
RETURNING {columns}

-- name: retry
UPDATE outbox SET state = 'pending', draft = ?, give_up_after = attempts + ?, next_attempt_at = 0, ended_at = NULL
WHERE id = ? AND state IN ('failed', 'unknown')

-- name: waiting_in_chat
SELECT {columns} FROM outbox
WHERE platform = ? AND account = ? AND chat_id = ? AND state IN ('pending', 'sending') AND state = 'pending' ORDER BY id

-- name: failed_in_chat
-- The condition repeats the words of the index of dead letters, which are few.
SELECT {columns} FROM outbox
WHERE state IN ('failed', 'unknown') AND state = 'failed' AND platform = ? AND account = ? AND chat_id = ?
    AND created_at > ?
ORDER BY id

-- name: due_now
UPDATE outbox SET next_attempt_at = 0 WHERE id = ? AND state = 'pending'

-- name: drop
UPDATE outbox SET state = 'dropped', error = ?, next_attempt_at = NULL, ended_at = {now}
WHERE id = ? AND state IN ('draft', 'pending', 'failed', 'unknown')

-- name: drop_drafts
-- A turn that ended without a reply has no item to send.
UPDATE outbox SET state = 'dropped', error = ?, ended_at = {now} WHERE turn_id = ? AND state = 'draft'

-- name: set_aside_drafts
-- A turn waits: its draft stays in the chat, and its answer will be a separate message.
UPDATE outbox SET state = 'dropped', dedup_key = dedup_key || ':' || id, error = ?, ended_at = {now}
WHERE turn_id = ? AND state = 'draft'

-- name: trim_dead
DELETE FROM outbox WHERE state IN ('failed', 'unknown')
    AND id <= (SELECT id FROM outbox WHERE state IN ('failed', 'unknown') ORDER BY id DESC LIMIT 1 OFFSET ?)
RETURNING {columns}

-- name: dead
SELECT {columns} FROM outbox WHERE state IN ('failed', 'unknown') AND id < ? ORDER BY id DESC LIMIT ?

-- name: list
SELECT {columns} FROM outbox WHERE (CAST(? AS TEXT) IS NULL OR state = ?) AND id < ? ORDER BY id DESC LIMIT ?

-- name: of_turn
SELECT {columns} FROM outbox WHERE conversation_id = ? AND turn_id = ? ORDER BY id

-- let: is_message
platform = ? AND account = ? AND chat_id = ? AND replace(platform_ids, ?, '') <> platform_ids

-- name: shown_in
-- The newest item of a conversation with this message (a JSON text) of a chat.
SELECT {columns} FROM outbox WHERE conversation_id = ? AND {is_message} ORDER BY id DESC LIMIT 1

-- name: shown_as
-- Of any conversation. Reads the table: only /why about an older conversation asks, so no index is kept for it.
SELECT {columns} FROM outbox WHERE {is_message} ORDER BY id DESC LIMIT 1

-- name: counts
SELECT state, COUNT(*) FROM outbox GROUP BY state

-- name: owed_count
SELECT COUNT(*) FROM outbox WHERE state IN ('pending', 'sending')

-- name: dead_count
SELECT COUNT(*) FROM outbox WHERE state IN ('failed', 'unknown')

-- name: with_files
-- Also failed ones: a person can retry them.
SELECT payload FROM outbox WHERE state NOT IN ('sent', 'dropped') AND payload LIKE '%"files"%'

-- name: prune_drafts
-- Of turns that will never make them final.
DELETE FROM outbox WHERE id IN (
    SELECT o.id FROM outbox o
    WHERE o.state = 'draft' AND o.created_at < ?
        AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.id = o.turn_id AND t.state = 'running')
    LIMIT ?
)

-- name: prune
DELETE FROM outbox
WHERE id IN (SELECT id FROM outbox WHERE ended_at < ? AND state IN ('sent', 'dropped') LIMIT ?)
