-- Finding and listing conversations. Filters are added in lists.py from fixed fragments.

-- name: by_activity
-- One row per conversation, through the partial index on the minute of last activity.
SELECT t.*, r.started_at AS root_started_at, r.source AS root_source FROM sessions t JOIN sessions r ON r.id = t.root_id

-- name: by_start
-- One row per conversation, newest start first.
SELECT t.*, r.started_at AS root_started_at, r.source AS root_source
FROM sessions r JOIN conversations c ON c.id = r.id JOIN sessions t ON t.id = c.tip_id

-- name: raw_roots
SELECT t.* FROM sessions t JOIN conversations c ON c.id = t.id

-- name: all_rows
SELECT t.* FROM sessions t

-- name: count_all
SELECT (SELECT count(*) FROM sessions) - (SELECT count(*) FROM sessions WHERE archived <> 0)

-- name: count
SELECT count(*) FROM sessions t

-- name: by_prefix
-- Two rows show that a prefix is ambiguous. A range, so that the primary key answers.
SELECT id FROM sessions WHERE id >= ? AND id < ? ORDER BY id LIMIT ?
