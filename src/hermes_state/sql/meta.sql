-- Named values of the store itself.

-- name: get
SELECT value FROM state_meta WHERE key = ?

-- name: put
INSERT INTO state_meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: clear
-- Before another store's values replace them.
DELETE FROM state_meta

-- name: swap
-- No row changes when the value is not the one that was read (NULL: there was none).
INSERT INTO state_meta AS m (key, value) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value
WHERE m.value IS NOT DISTINCT FROM ?
