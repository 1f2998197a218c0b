-- People and the identities by which platforms know them.

-- let: person
p.id, p.display_name, p.role, p.zone, p.created_at

-- name: by_identity
SELECT {person} FROM identities i JOIN people p ON p.id = i.person_id
WHERE i.platform = ? AND i.account = ? AND i.native_id = ?

-- name: known_as
SELECT DISTINCT {person} FROM identities i JOIN people p ON p.id = i.person_id
WHERE i.platform = ? AND i.native_id = ? ORDER BY p.created_at, p.id

-- name: get
SELECT {person} FROM people p WHERE p.id = ?

-- name: list
SELECT {person} FROM people p ORDER BY p.created_at, p.id LIMIT ? OFFSET ?

-- name: count
SELECT COUNT(*) FROM people

-- name: add
-- Two processes may create the owner at once: that person has one id.
INSERT INTO people (id, display_name, role, zone, created_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING

-- name: link
-- An identity belongs to one person; a second process finds it taken.
INSERT INTO identities (platform, account, native_id, person_id, display_name, created_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (platform, account, native_id) DO NOTHING

-- name: unlink
DELETE FROM identities WHERE platform = ? AND account = ? AND native_id = ?

-- name: identities
SELECT platform, account, native_id, person_id, display_name, created_at FROM identities
WHERE person_id = ? ORDER BY created_at, platform, account, native_id

-- name: remove
DELETE FROM people WHERE id = ?

-- name: set_role
UPDATE people SET role = ? WHERE id = ?

-- name: set_zone
UPDATE people SET zone = ? WHERE id = ?

-- name: set_name
UPDATE people SET display_name = ? WHERE id = ?
