-- What is asked of a copy before it is believed.

-- name: sound @sqlite
PRAGMA integrity_check(1)

-- name: links @sqlite
PRAGMA foreign_key_check
