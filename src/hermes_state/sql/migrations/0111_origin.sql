-- Whose words a message holds. Rows from before have no origin, so nothing in them counts as a person's words.

ALTER TABLE messages ADD COLUMN origin TEXT; -- person | staff | outside:SOURCE; NULL: Hermes's own, or not known
CREATE INDEX idx_messages_origin ON messages(session_id, origin) WHERE origin IS NOT NULL;
