-- Search, asked of the index. On SQLite these run on the index's own file; on PostgreSQL `search_index` stands for the
-- schema of the index, whose name follows that of the store.

-- name: found @sqlite
-- A new index: nothing taken in yet. Its generation tells it from the one before.
INSERT INTO feed (format, generation, position) VALUES (?, lower(hex(randomblob(8))), 0)

-- name: found @postgresql
INSERT INTO search_index.feed (format, generation, xid, position) VALUES (?, gen_random_uuid()::text, '0', 0)

-- name: position @sqlite
SELECT format, generation, position, mark FROM feed

-- name: position @postgresql
SELECT format, generation, xid::text, position FROM search_index.feed

-- name: advance @sqlite
UPDATE feed SET position = ?, mark = ?

-- name: advance @postgresql
UPDATE search_index.feed SET xid = ?::text::xid8, position = ?

-- name: enter @sqlite
INSERT INTO entries (rowid, body) VALUES (?, ?)

-- name: enter @postgresql
INSERT INTO search_index.entries (message_id, words, whole) VALUES (?, ?::tsvector, ?::boolean)
ON CONFLICT (message_id) DO NOTHING

-- name: drop_entry @sqlite
DELETE FROM entries WHERE rowid = ?

-- name: drop_entry @postgresql
DELETE FROM search_index.entries WHERE message_id = ?

-- name: widen_block @sqlite
INSERT INTO blocks (number, oldest, newest) VALUES (?, ?, ?)
ON CONFLICT (number) DO UPDATE SET oldest = min(oldest, excluded.oldest), newest = max(newest, excluded.newest)

-- name: widen_block @postgresql
INSERT INTO search_index.blocks AS b (number, oldest, newest) VALUES (?, ?, ?)
ON CONFLICT (number) DO UPDATE SET oldest = LEAST(b.oldest, excluded.oldest), newest = GREATEST(b.newest, excluded.newest)

-- name: blocks @sqlite
SELECT number, oldest, newest FROM blocks WHERE number >= ? ORDER BY number

-- name: blocks @postgresql
SELECT number, oldest, newest FROM search_index.blocks WHERE number >= ? ORDER BY number

-- name: newest @sqlite
SELECT rowid FROM entries WHERE entries MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rowid DESC LIMIT ?

-- name: oldest @sqlite
SELECT rowid FROM entries WHERE entries MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rowid LIMIT ?

-- name: newest_among @sqlite
-- The plus keeps the ids a test on each match; looked up one by one, each would start the full-text query anew.
SELECT rowid FROM entries WHERE entries MATCH ? AND rowid BETWEEN ? AND ? AND +rowid IN {numbers}
ORDER BY rowid DESC LIMIT ?

-- name: oldest_among @sqlite
SELECT rowid FROM entries WHERE entries MATCH ? AND rowid BETWEEN ? AND ? AND +rowid IN {numbers}
ORDER BY rowid LIMIT ?

-- name: floor @sqlite
-- The newest match that is no longer in the window.
SELECT rowid FROM entries WHERE entries MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rowid DESC LIMIT 1 OFFSET ?

-- name: ranked @sqlite
-- The sort stays inside SQLite: handing 20,000 scores to Python would cost more than computing them.
SELECT id FROM (SELECT rowid AS id, rank AS score FROM entries WHERE entries MATCH ? AND rowid BETWEEN ? AND ?)
ORDER BY score, id DESC LIMIT ?

-- name: ranked_window @sqlite
-- The same with the window in it: one match more than it holds says that there are more.
WITH matches AS MATERIALIZED (
    SELECT rowid AS id, rank AS score FROM entries WHERE entries MATCH ? AND rowid BETWEEN ? AND ?
    ORDER BY rowid DESC LIMIT ?
)
SELECT id, (SELECT count(*) FROM matches), (SELECT min(id) FROM matches) FROM matches ORDER BY score, id DESC LIMIT ?

-- name: ranked_among @sqlite
SELECT id FROM (SELECT rowid AS id, rank AS score FROM entries WHERE entries MATCH ? AND rowid BETWEEN ? AND ?
                AND +rowid IN {numbers})
ORDER BY score, id DESC LIMIT ?

-- name: newest @postgresql
-- A message too big for PostgreSQL's word vector is kept without the places of its words, or without words; it is found
-- when it might match, and the search looks at its text.
SELECT message_id FROM (
    SELECT message_id FROM search_index.entries WHERE whole AND words @@ ?::tsquery
    UNION ALL
    SELECT message_id FROM search_index.entries WHERE NOT whole AND (words IS NULL OR words @@ ?::tsquery)
) AS matches WHERE message_id BETWEEN ? AND ? ORDER BY message_id DESC LIMIT ?

-- name: oldest @postgresql
SELECT message_id FROM (
    SELECT message_id FROM search_index.entries WHERE whole AND words @@ ?::tsquery
    UNION ALL
    SELECT message_id FROM search_index.entries WHERE NOT whole AND (words IS NULL OR words @@ ?::tsquery)
) AS matches WHERE message_id BETWEEN ? AND ? ORDER BY message_id LIMIT ?

-- name: newest_among @postgresql
SELECT message_id FROM (
    SELECT message_id FROM search_index.entries WHERE whole AND words @@ ?::tsquery
    UNION ALL
    SELECT message_id FROM search_index.entries WHERE NOT whole AND (words IS NULL OR words @@ ?::tsquery)
) AS matches WHERE message_id BETWEEN ? AND ? AND message_id IN {numbers} ORDER BY message_id DESC LIMIT ?

-- name: oldest_among @postgresql
SELECT message_id FROM (
    SELECT message_id FROM search_index.entries WHERE whole AND words @@ ?::tsquery
    UNION ALL
    SELECT message_id FROM search_index.entries WHERE NOT whole AND (words IS NULL OR words @@ ?::tsquery)
) AS matches WHERE message_id BETWEEN ? AND ? AND message_id IN {numbers} ORDER BY message_id LIMIT ?

-- name: ranked_window @postgresql
WITH matches AS MATERIALIZED (
    SELECT message_id, score FROM (
        SELECT message_id, ts_rank(words, ?::tsquery, 1) AS score
        FROM search_index.entries WHERE whole AND words @@ ?::tsquery
        UNION ALL
        SELECT message_id, 0 FROM search_index.entries WHERE NOT whole AND (words IS NULL OR words @@ ?::tsquery)
    ) AS every WHERE message_id BETWEEN ? AND ? ORDER BY message_id DESC LIMIT ?
)
SELECT message_id, (SELECT count(*) FROM matches), (SELECT min(message_id) FROM matches)
FROM matches ORDER BY score DESC, message_id DESC LIMIT ?

-- name: ranked_among @postgresql
SELECT message_id FROM (
    SELECT message_id, ts_rank(words, ?::tsquery, 1) AS score
    FROM search_index.entries WHERE whole AND words @@ ?::tsquery
    UNION ALL
    SELECT message_id, 0 FROM search_index.entries WHERE NOT whole AND (words IS NULL OR words @@ ?::tsquery)
) AS matches WHERE message_id BETWEEN ? AND ? AND message_id IN {numbers} ORDER BY score DESC, message_id DESC LIMIT ?

-- name: merge @sqlite
-- Merges a few hundred pages at a time; nothing changes any more when all is merged.
INSERT INTO entries (entries, rank) VALUES ('merge', ?)

-- name: exists @postgresql
-- Asked of the catalogue itself. `to_regclass` answers from the connection's memory, which learns of another's new
-- schema only when a transaction begins or a table is locked: behind the advisory lock it still said "no", and the
-- schema that another had just made was dropped.
SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = ? AND c.relname = 'feed' AND c.relkind = 'r')

-- name: lock @postgresql
-- One feeder at a time; whoever does not get it leaves the work to the other. The number is ours alone.
SELECT pg_try_advisory_xact_lock(720575941, hashtext(?))

-- name: lock_waiting @postgresql
SELECT pg_advisory_xact_lock(720575941, hashtext(?))

-- name: size @postgresql
SELECT COALESCE(sum(pg_total_relation_size(c.oid)), 0)::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ? AND c.relkind = 'r'
