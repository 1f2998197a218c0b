-- The search index, in a schema of its own (`search_index` stands for its name). Derived from the transcript: it may be
-- dropped at any moment.

CREATE SCHEMA search_index;

CREATE TABLE search_index.entries (message_id BIGINT PRIMARY KEY, words tsvector, whole BOOLEAN NOT NULL);
CREATE INDEX entries_words ON search_index.entries USING gin(words);
CREATE INDEX entries_not_whole ON search_index.entries(message_id) WHERE NOT whole;

-- When the messages of each 256 ids were written: lets a search by time stop early.
CREATE TABLE search_index.blocks (number BIGINT PRIMARY KEY, oldest DOUBLE PRECISION NOT NULL, newest DOUBLE PRECISION NOT NULL);

-- How far the index has followed the transcript. One row.
CREATE TABLE search_index.feed (format BIGINT NOT NULL, generation TEXT NOT NULL, xid xid8 NOT NULL, position BIGINT NOT NULL);
