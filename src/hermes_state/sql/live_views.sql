-- The text that a running turn is writing, for watchers in other processes.

-- name: watch
INSERT INTO live_views (conversation_id, watched_until) VALUES (?, {now} + ?)
ON CONFLICT (conversation_id) DO UPDATE SET watched_until = excluded.watched_until

-- name: forget
DELETE FROM live_views WHERE watched_until < {now} - ?

-- name: watched
SELECT conversation_id FROM live_views WHERE watched_until > {now}

-- name: show
UPDATE live_views SET turn_id = ?, step = ?, text = ? WHERE conversation_id = ? AND watched_until > {now}

-- name: clear
UPDATE live_views SET turn_id = NULL, step = 0, text = '' WHERE conversation_id = ? AND turn_id = ?

-- name: get
SELECT turn_id, step, text FROM live_views WHERE conversation_id = ? AND turn_id IS NOT NULL
