-- Schema 104: two indexes less that every answer writes to. What is being sent is found among what is open, and what a
-- turn owes through its conversation, which nearly every item names.
DROP INDEX idx_outbox_sending;
DROP INDEX idx_outbox_turn;
CREATE INDEX idx_outbox_draft ON outbox(turn_id) WHERE state = 'draft';
CREATE INDEX idx_outbox_loose ON outbox(turn_id) WHERE turn_id IS NOT NULL AND conversation_id IS NULL;
