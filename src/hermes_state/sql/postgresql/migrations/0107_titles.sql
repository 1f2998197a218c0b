-- Schema 107: titles are unique for each person, not over the store (`titles.py`): else a refused title tells that
-- somebody else has it.
DROP INDEX idx_sessions_title_unique;
CREATE INDEX idx_sessions_title ON sessions(title) WHERE title IS NOT NULL;
