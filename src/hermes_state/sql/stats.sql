-- Counts for people. The rows' own counters answer, so that no transcript is read.

-- name: totals
SELECT count(*), COALESCE(sum(message_count), 0), min(started_at), max(last_active) FROM sessions

-- name: conversations
SELECT count(*), COALESCE(sum(CASE WHEN archived <> 0 THEN 1 ELSE 0 END), 0) FROM sessions WHERE listed = 1

-- name: by_source
-- A conversation counts for its first source, with the messages of all its segments.
SELECT r.source, sum(s.listed), COALESCE(sum(s.message_count), 0), max(s.last_active)
FROM sessions s JOIN sessions r ON r.id = s.root_id
GROUP BY r.source ORDER BY max(s.last_active) DESC, r.source

-- name: size @sqlite
SELECT (SELECT page_count FROM pragma_page_count) * (SELECT page_size FROM pragma_page_size)

-- name: size @postgresql
SELECT COALESCE(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = current_schema() AND c.relkind = 'r'

-- name: version @sqlite
SELECT 'SQLite ' || sqlite_version()

-- name: version @postgresql
SELECT 'PostgreSQL ' || current_setting('server_version')
