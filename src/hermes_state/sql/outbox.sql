-- What we owe a chat. `attempts` grows with every claim and is the fence of the sender that made it: a report that
-- names an older attempt changes nothing.

-- let: columns
id, dedup_key, platform, account, chat_id, conversation_id, turn_id, trace_id, payload, state, attempts,
    give_up_after, next_attempt_at, sender, sending_until, platform_ids, draft, error, created_at, ended_at

-- let: owed
dedup_key, platform, account, chat_id, conversation_id, turn_id, trace_id, payload, state, give_up_after

-- let: in_place
(outbox.platform, outbox.account, outbox.chat_id) = (excluded.platform, excluded.account, excluded.chat_id)

-- let: under_way
-- Of the few that are open some are being sent. Their index is named by its own words, which SQLite looks for.
state IN ('pending', 'sending') AND state = 'sending'

-- name: enqueue
-- Owed from now on, and due at once (0) whatever becomes of the clock. The same key again changes nothing, unless it
-- was only a draft so far. Of one that stood in another chat nothing counts here: it is said anew where it is owed.
INSERT INTO outbox ({owed}, next_attempt_at, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'pending', ?, 0, {now})
ON CONFLICT (dedup_key) DO UPDATE SET payload = excluded.payload, state = 'pending', next_attempt_at = 0,
    platform = excluded.platform, account = excluded.account, chat_id = excluded.chat_id,
    platform_ids = CASE WHEN {in_place} THEN outbox.platform_ids ELSE '[]' END,
    draft = CASE WHEN {in_place} THEN outbox.draft END
WHERE outbox.state = 'draft'
RETURNING {columns}

-- name: enqueue_own
-- `enqueue` and `claim_new` in one, for what nearly every answer is: new, and its chat is owed nothing from before.
INSERT INTO outbox ({owed}, next_attempt_at, created_at, attempts, sender, sending_until)
SELECT CAST(? AS TEXT), p.platform, p.account, p.chat_id, CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT),
    CAST(? AS TEXT), 'sending', CAST(? AS INTEGER), 0, {now}, 1, CAST(? AS TEXT), {now} + ?
FROM (SELECT CAST(? AS TEXT) AS platform, CAST(? AS TEXT) AS account, CAST(? AS TEXT) AS chat_id) p
WHERE NOT EXISTS (
    SELECT 1 FROM outbox e
    WHERE e.platform = p.platform AND e.account = p.account AND e.chat_id = p.chat_id
        AND e.state IN ('pending', 'sending')
)
ON CONFLICT (dedup_key) DO NOTHING
RETURNING {columns}

-- name: draft
INSERT INTO outbox ({owed}, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'draft', ?, {now})
ON CONFLICT (dedup_key) DO NOTHING
RETURNING {columns}

-- name: may_show
-- A draft may begin: its chat is owed nothing from before, and its turn has not ended meanwhile.
SELECT 1
WHERE NOT EXISTS (
        SELECT 1 FROM outbox WHERE platform = ? AND account = ? AND chat_id = ? AND state IN ('pending', 'sending')
    ) AND NOT EXISTS (SELECT 1 FROM turns WHERE id = ? AND state <> 'running')

-- name: by_key
SELECT {columns} FROM outbox WHERE dedup_key = ?

-- name: beginning_with
SELECT {columns} FROM outbox WHERE substr(dedup_key, 1, ?) = ? ORDER BY id

-- name: said_since
-- What stands in the chat below an item, and what came in since it was made.
SELECT 1
WHERE EXISTS (
        SELECT 1 FROM outbox WHERE id > ? AND platform = ? AND account = ? AND chat_id = ? AND dedup_key <> ?
    ) OR EXISTS (
        SELECT 1 FROM inbox WHERE platform = ? AND account = ? AND chat_id = ? AND received_at > ? AND id < ?
    )

-- name: get
SELECT {columns} FROM outbox WHERE id = ?

-- let: due
-- Due, and the first of its chat that is not finished. A moment further away than any delay we give means that the
-- clock was set back. The order between chats does not matter; this one is the index's.
SELECT o.id FROM outbox o
    WHERE o.state = 'pending' AND (o.next_attempt_at <= {now} OR o.next_attempt_at > {now} + ?)
        AND (CAST(? AS TEXT) IS NULL OR o.platform IN {texts})
        AND o.id = (
            SELECT MIN(e.id) FROM outbox e
            WHERE e.platform = o.platform AND e.account = o.account AND e.chat_id = o.chat_id
                AND e.state IN ('pending', 'sending')
        )
    ORDER BY o.next_attempt_at LIMIT ?

-- name: claim_due
UPDATE outbox SET state = 'sending', attempts = attempts + 1, sender = ?, sending_until = {now} + ?, error = NULL
WHERE id IN ({due})
RETURNING {columns}

-- name: claim_due @postgresql
-- Two deliverers never get the same row: the second one skips what the first has locked.
UPDATE outbox SET state = 'sending', attempts = attempts + 1, sender = ?, sending_until = {now} + ?, error = NULL
WHERE id IN ({due} FOR UPDATE OF o SKIP LOCKED)
RETURNING {columns}

-- name: claim_new
-- An item whose sender waits for it already, without a round of its own. The chat's order holds; two that processes of one
-- PostgreSQL make at the same moment do not see each other, and have none.
UPDATE outbox SET state = 'sending', attempts = attempts + 1, sender = ?, sending_until = {now} + ?
WHERE id = ? AND state = 'pending' AND id = (
    SELECT MIN(e.id) FROM outbox e
    WHERE e.platform = outbox.platform AND e.account = outbox.account AND e.chat_id = outbox.chat_id
        AND e.state IN ('pending', 'sending')
)
RETURNING {columns}

-- name: next_due
-- Without platforms: of anything. With them: of the first of each chat, for whoever could claim it then.
SELECT MIN(o.next_attempt_at) FROM outbox o
WHERE o.state = 'pending' AND (CAST(? AS TEXT) IS NULL OR (o.platform IN {texts} AND o.id = (
    SELECT MIN(e.id) FROM outbox e
    WHERE e.platform = o.platform AND e.account = o.account AND e.chat_id = o.chat_id
        AND e.state IN ('pending', 'sending')
)))

-- name: progress
-- What stands in the chat so far; a sender that is heard of has more time.
UPDATE outbox SET platform_ids = ?, draft = COALESCE(?, draft),
    sending_until = CASE WHEN state = 'sending' THEN {now} + ? ELSE NULL END
WHERE id = ? AND attempts = ? AND state IN ('draft', 'sending')

-- name: sent
-- Also after we stopped waiting: the sender knows better than we do.
UPDATE outbox SET state = 'sent', platform_ids = ?, draft = NULL, error = NULL, sending_until = NULL, ended_at = {now}
WHERE id = ? AND attempts = ? AND state IN ('sending', 'unknown')

-- name: put_off
-- An attempt that does not count (1) leaves room for one more. On the right of a SET stands what was there before.
UPDATE outbox SET error = ?, sending_until = NULL, give_up_after = give_up_after + ?,
    state = CASE WHEN attempts >= give_up_after + ? THEN 'failed' ELSE 'pending' END,
    next_attempt_at = CASE WHEN attempts >= give_up_after + ? THEN NULL ELSE {now} + ? END,
    ended_at = CASE WHEN attempts >= give_up_after + ? THEN {now} END
WHERE id = ? AND attempts = ? AND state = 'sending'
RETURNING {columns}

-- name: clock_was_set_back
-- By so many seconds: what was put off waits no longer for it.
UPDATE outbox SET next_attempt_at = next_attempt_at - ? WHERE state = 'pending' AND next_attempt_at > {now}

-- name: close
-- failed or unknown
UPDATE outbox SET state = ?, error = ?, sending_until = NULL, ended_at = {now}
WHERE id = ? AND attempts = ? AND state = 'sending'
RETURNING {columns}

-- name: lose_senders
-- Nobody has heard of the sender in time, or it is known to be dead: what the chat shows is unknown.
UPDATE outbox SET state = 'unknown', error = ?, sending_until = NULL, ended_at = {now}
WHERE {under_way} AND (sending_until <= {now} OR sending_until > {now} + ? OR sender = ?)
RETURNING {columns}

-- name: of_sender
-- Asked again and again. The expression keeps the planner on the index of what is under way, instead of walking the table.
SELECT {columns} FROM outbox WHERE {under_way} AND sender = ? ORDER BY id + 0

-- name: senders
SELECT DISTINCT sender FROM outbox WHERE {under_way} AND sender IS NOT NULL

-- name: go_on
-- Its sender is lost; the note says what may have arrived.
UPDATE outbox SET state = 'pending', draft = ?, give_up_after = give_up_after + ?, next_attempt_at = 0, ended_at = NULL
WHERE id = ? AND state = 'unknown'
RETURNING {columns}

-- name: retry
UPDATE outbox SET state = 'pending', draft = ?, give_up_after = attempts + ?, next_attempt_at = 0, ended_at = NULL
WHERE id = ? AND state IN ('failed', 'unknown')

-- name: drop
UPDATE outbox SET state = 'dropped', error = ?, next_attempt_at = NULL, ended_at = {now}
WHERE id = ? AND state IN ('draft', 'pending', 'failed', 'unknown')

-- name: drop_drafts
-- A turn that ended without a reply owes none.
UPDATE outbox SET state = 'dropped', error = ?, ended_at = {now} WHERE turn_id = ? AND state = 'draft'

-- name: set_aside_drafts
-- A turn waits: what it has shown stays, and its answer will be a message of its own.
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

-- name: counts
SELECT state, COUNT(*) FROM outbox GROUP BY state

-- name: owed_count
SELECT COUNT(*) FROM outbox WHERE state IN ('pending', 'sending')

-- name: dead_count
SELECT COUNT(*) FROM outbox WHERE state IN ('failed', 'unknown')

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
