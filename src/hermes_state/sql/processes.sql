-- Background processes. `state` changes once, from 'running'.

-- name: running_of_person
SELECT count(*) FROM processes WHERE state = 'running' AND COALESCE(person_id, '') = COALESCE(?, '')

-- name: begin
INSERT INTO processes (id, conversation_id, turn_id, call_id, person_id, route, machine, command, workdir, wall, opening,
    address, notify, state, started_at, ends_by)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'running', ?, ?)

-- name: supervised
UPDATE processes SET supervisor = ? WHERE id = ?

-- name: silence
UPDATE processes SET notify = 0 WHERE id = ? AND state = 'running'

-- name: end
UPDATE processes SET state = ?, exit_code = ?, trouble = ?, output_bytes = ?, ended_at = ? WHERE id = ? AND state = 'running'

-- name: get
SELECT {columns} FROM processes WHERE id = ?

-- name: running
SELECT {columns} FROM processes WHERE state = 'running' ORDER BY started_at, id

-- name: running_count
SELECT count(*) FROM processes WHERE state = 'running'

-- name: runs_on_route
SELECT 1 FROM processes WHERE state = 'running' AND route = ? LIMIT 1

-- name: newest
SELECT {columns} FROM processes ORDER BY started_at DESC, id DESC LIMIT ? OFFSET ?

-- name: of_conversation
SELECT {columns} FROM processes WHERE conversation_id = ? ORDER BY started_at DESC, id DESC LIMIT ?

-- name: of_call
SELECT {columns} FROM processes WHERE turn_id = ? AND call_id = ?

-- name: prune
DELETE FROM processes WHERE id IN (SELECT id FROM processes WHERE ended_at < ? LIMIT ?)
