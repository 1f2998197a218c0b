-- The search index, in a file of its own. Derived from the transcript: it may be deleted at any moment.

-- Contentless: only the words' places are kept, texts are read from the transcript. Words are split before they come here;
-- see search/words.py for why the ascii tokenizer is the right one.
CREATE VIRTUAL TABLE entries USING fts5(body, content='', contentless_delete=1, tokenize='ascii');
-- Larger pieces written at once, and more of them before they are merged: the feed is quicker by a third.
INSERT INTO entries (entries, rank) VALUES ('hashsize', 33554432), ('automerge', 8);

-- When the messages of each 256 ids were written: lets a search by time stop early.
CREATE TABLE blocks (number INTEGER PRIMARY KEY, oldest REAL NOT NULL, newest REAL NOT NULL);

-- How far the index has followed the transcript. One row.
CREATE TABLE feed (format INTEGER NOT NULL, generation TEXT NOT NULL, position INTEGER NOT NULL, mark TEXT);
