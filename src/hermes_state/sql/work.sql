-- Erasing what belongs to conversations. Rows without a conversation of their own are found through their turn, so
-- the turns go after them.

-- name: erase_inbox
DELETE FROM inbox WHERE turn_id IN (SELECT id FROM turns WHERE conversation_id IN {texts})

-- name: erase_prompts
-- What a terminal stored for the conversation and no turn took.
DELETE FROM inbox WHERE platform = 'local' AND account = '' AND chat_id IN {texts}

-- name: erase_effects
DELETE FROM effects WHERE turn_id IN (SELECT id FROM turns WHERE conversation_id IN {texts})

-- name: erase_turn_parcels
DELETE FROM outbox
WHERE conversation_id IS NULL AND turn_id IN (SELECT id FROM turns WHERE conversation_id IN {texts})

-- name: erase_outbox
DELETE FROM outbox WHERE conversation_id IN {texts}

-- name: erase_turns
DELETE FROM turns WHERE conversation_id IN {texts}

-- name: erase_approvals
DELETE FROM approvals WHERE conversation_id IN {texts}

-- name: erase_grants
-- Those for always hold in every conversation, until somebody revokes them.
DELETE FROM grants WHERE conversation_id IN {texts} AND span <> 'always'

-- name: erase_exits
DELETE FROM wall_exits WHERE conversation_id IN {texts}

-- name: erase_events
DELETE FROM events WHERE conversation_id IN {texts}

-- name: erase_epochs
DELETE FROM prefix_epochs WHERE conversation_id IN {texts}

-- name: erase_breaks
DELETE FROM prefix_breaks WHERE conversation_id IN {texts}

-- name: erase_break_counts
DELETE FROM prefix_break_counts WHERE conversation_id IN {texts} AND conversation_id <> ''

-- name: erase_tallies
DELETE FROM budget_tallies WHERE scope = 'conversation' AND subject IN {texts}

-- name: unname_reservations
-- The call still counts for its day.
UPDATE budget_reservations SET conversation_id = '' WHERE conversation_id IN {texts}

-- name: erase_leases
DELETE FROM leases WHERE conversation_id IN {texts}
