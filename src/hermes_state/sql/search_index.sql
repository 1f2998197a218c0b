-- Search statements on the index. On SQLite they run on the index's own file; on PostgreSQL `search_index` stands for
-- the schema of the index, whose name follows that of the store.

-- name: make @sqlite
-- A separate file, derived from the transcript: it may be deleted at any time. Contentless: it stores only the words'
-- positions; texts are read from the transcript. Words are split before they come here; search/words.py says why the
-- ascii tokenizer is right. Larger writes, and more of them before a merge, make the feed a third faster. `feed` is one
-- row: the index's position in the transcript, the newest time so far, and the largest lateness of a message.
CREATE VIRTUAL TABLE entries USING fts5(body, content='', contentless_delete=1, tokenize='ascii');
INSERT INTO entries (entries, rank) VALUES ('hashsize', 33554432), ('automerge', 8);
CREATE TABLE feed (
    format INTEGER NOT NULL, position INTEGER NOT NULL, mark TEXT, newest REAL NOT NULL, lateness REAL NOT NULL
);

-- name: make @postgresql
CREATE SCHEMA search_index;
CREATE TABLE search_index.entries (message_id BIGINT PRIMARY KEY, words tsvector, whole BOOLEAN NOT NULL);
CREATE INDEX entries_words ON search_index.entries USING gin(words);
CREATE INDEX entries_not_whole ON search_index.entries(message_id) WHERE NOT whole;
CREATE TABLE search_index.feed (
    format BIGINT NOT NULL, xid xid8 NOT NULL, position BIGINT NOT NULL,
    newest DOUBLE PRECISION NOT NULL, lateness DOUBLE PRECISION NOT NULL
);

-- name: found @sqlite
-- A new index without messages.
INSERT INTO feed (format, position, newest, lateness) VALUES (?, 0, 0, 0)

-- name: found @postgresql
INSERT INTO search_index.feed (format, xid, position, newest, lateness) VALUES (?, '0', 0, 0, 0)

-- name: position @sqlite
SELECT format, position, mark, newest, lateness FROM feed

-- name: position @postgresql
SELECT format, xid::text, position, newest, lateness FROM search_index.feed

-- name: advance @sqlite
UPDATE feed SET position = ?, mark = ?, newest = ?, lateness = ?

-- name: advance @postgresql
UPDATE search_index.feed SET xid = ?::text::xid8, position = ?, newest = ?, lateness = ?

-- name: enter @sqlite
INSERT INTO entries (rowid, body) VALUES (?, ?)

-- name: enter @postgresql
INSERT INTO search_index.entries (message_id, words, whole) VALUES (?, ?::tsvector, ?::boolean)
ON CONFLICT (message_id) DO NOTHING

-- name: drop_entry @sqlite
DELETE FROM entries WHERE rowid = ?

-- name: drop_entry @postgresql
DELETE FROM search_index.entries WHERE message_id = ?

-- let: matched
-- Ids may be given as a list (NULL: any). The plus makes them a test on each match; looked up one by one, each would
-- start the full-text query again.
entries MATCH ? AND rowid BETWEEN ? AND ? AND (CAST(? AS TEXT) IS NULL OR +rowid IN {numbers})

-- name: newest @sqlite
SELECT rowid FROM entries WHERE {matched} ORDER BY rowid DESC LIMIT ?

-- name: oldest @sqlite
SELECT rowid FROM entries WHERE {matched} ORDER BY rowid LIMIT ?

-- name: floor @sqlite
-- The newest match outside the window.
SELECT rowid FROM entries WHERE entries MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rowid DESC LIMIT 1 OFFSET ?

-- name: scores @sqlite
-- The sort stays inside SQLite: passing 20,000 scores to Python would cost more than computing them.
SELECT id, score FROM (SELECT rowid AS id, rank AS score FROM entries WHERE {matched})
ORDER BY score, id DESC LIMIT ?

-- name: ranked_window @sqlite
-- The same with the window in it: one match more than it holds shows that there are more.
WITH matches AS MATERIALIZED (
    SELECT rowid AS id, rank AS score FROM entries WHERE entries MATCH ? AND rowid BETWEEN ? AND ?
    ORDER BY rowid DESC LIMIT ?
)
SELECT id, (SELECT count(*) FROM matches), (SELECT min(id) FROM matches) FROM matches ORDER BY score, id DESC LIMIT ?

-- let: matches
-- A message too big for PostgreSQL's word vector is stored without the positions of its words, or without words; it is
-- found when it might match, and the search compares its text.
(
    SELECT message_id FROM search_index.entries WHERE whole AND words @@ ?::tsquery
    UNION ALL
    SELECT message_id FROM search_index.entries WHERE NOT whole AND (words IS NULL OR words @@ ?::tsquery)
) AS matches WHERE message_id BETWEEN ? AND ? AND (CAST(? AS TEXT) IS NULL OR message_id IN {numbers})

-- let: scored
(
    SELECT message_id, ts_rank(words, ?::tsquery, 1) AS score
    FROM search_index.entries WHERE whole AND words @@ ?::tsquery
    UNION ALL
    SELECT message_id, 0 FROM search_index.entries WHERE NOT whole AND (words IS NULL OR words @@ ?::tsquery)
) AS scored WHERE message_id BETWEEN ? AND ?

-- name: newest @postgresql
SELECT message_id FROM {matches} ORDER BY message_id DESC LIMIT ?

-- name: oldest @postgresql
SELECT message_id FROM {matches} ORDER BY message_id LIMIT ?

-- name: ranked_window @postgresql
WITH matches AS MATERIALIZED (SELECT message_id, score FROM {scored} ORDER BY message_id DESC LIMIT ?)
SELECT message_id, (SELECT count(*) FROM matches), (SELECT min(message_id) FROM matches)
FROM matches ORDER BY score DESC, message_id DESC LIMIT ?

-- name: scores @postgresql
SELECT message_id, score::double precision FROM {scored} AND message_id IN {numbers}
ORDER BY score DESC, message_id DESC LIMIT ?

-- name: merge @sqlite
-- Merges a few hundred pages at a time; nothing changes any more when all is merged.
INSERT INTO entries (entries, rank) VALUES ('merge', ?)

-- name: exists @postgresql
-- Reads the catalogue itself. `to_regclass` answers from the connection's cache, which learns of another process's new
-- schema only when a transaction begins or a table is locked: behind the advisory lock it still said "no", and the new
-- schema was dropped.
SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = ? AND c.relname = 'feed' AND c.relkind = 'r')

-- name: lock @postgresql
-- One feeder at a time; a second one leaves the work to the first. The number is ours alone.
SELECT pg_try_advisory_xact_lock(720575941, hashtext(?))

-- name: lock_waiting @postgresql
SELECT pg_advisory_xact_lock(720575941, hashtext(?))

-- name: size @postgresql
SELECT COALESCE(sum(pg_total_relation_size(c.oid)), 0)::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ? AND c.relkind = 'r'
