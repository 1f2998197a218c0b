-- The rendered prefix of a conversation, byte for byte, and its breaks.

-- name: intern
INSERT INTO prefix_blobs (hash, bytes, created_at) VALUES (?, ?, ?) ON CONFLICT (hash) DO NOTHING

-- name: intern @postgresql
-- Updating the row locks it: nobody removes it as unused before our epoch is committed.
INSERT INTO prefix_blobs (hash, bytes, created_at) VALUES (?, ?, ?)
ON CONFLICT (hash) DO UPDATE SET created_at = excluded.created_at

-- name: newest
SELECT epoch, hash FROM prefix_epochs WHERE conversation_id = ? ORDER BY epoch DESC LIMIT 1

-- name: add
INSERT INTO prefix_epochs (conversation_id, epoch, hash, reason, started_at) VALUES (?, ?, ?, ?, ?)

-- name: current
SELECT e.conversation_id, e.epoch, e.hash, e.reason, e.started_at, b.bytes
FROM prefix_epochs e JOIN prefix_blobs b ON b.hash = e.hash
WHERE e.conversation_id = ? ORDER BY e.epoch DESC LIMIT 1

-- name: epochs
SELECT conversation_id, epoch, hash, reason, started_at FROM prefix_epochs WHERE conversation_id = ? ORDER BY epoch

-- name: bytes
SELECT bytes FROM prefix_blobs WHERE hash = ?

-- name: trim_epochs
DELETE FROM prefix_epochs WHERE conversation_id = ? AND epoch <= ?

-- name: add_break
INSERT INTO prefix_breaks (conversation_id, epoch, expected, seen, reason, at) VALUES (?, ?, ?, ?, ?, ?)

-- name: count_break
INSERT INTO prefix_break_counts (conversation_id, breaks) VALUES (?, 1)
ON CONFLICT (conversation_id) DO UPDATE SET breaks = prefix_break_counts.breaks + 1

-- name: trim_breaks
DELETE FROM prefix_breaks WHERE id <= (SELECT id FROM prefix_breaks ORDER BY id DESC LIMIT 1 OFFSET ?)

-- name: break_count
SELECT breaks FROM prefix_break_counts WHERE conversation_id = ?

-- name: unused
-- Locked, so that an epoch which is just beginning with these bytes waits and then stores them again.
SELECT b.hash FROM prefix_blobs b
WHERE NOT EXISTS (SELECT 1 FROM prefix_epochs e WHERE e.hash = b.hash) LIMIT ? {lock}

-- name: forget
-- Checked again: an epoch may have begun between the read and the lock.
DELETE FROM prefix_blobs WHERE hash IN {texts}
    AND NOT EXISTS (SELECT 1 FROM prefix_epochs e WHERE e.hash = prefix_blobs.hash)
