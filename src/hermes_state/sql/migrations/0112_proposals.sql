-- Changes of skills and memory that wait for a person's yes, and those that were made, so that they can be undone.

CREATE TABLE proposals (
    id {key},
    kind TEXT NOT NULL,                         -- skill | memory
    file TEXT NOT NULL,                         -- below <home>/skills, or the memory: memory | user
    before TEXT,                                -- NULL: there is no such file
    after TEXT,                                 -- NULL: the file is removed
    why TEXT NOT NULL,
    origin TEXT,                                -- whose words led to it, as in messages
    person_id TEXT NOT NULL,                    -- for whom it was made
    conversation_id TEXT,
    state TEXT NOT NULL,                        -- open | accepted | refused | outdated | undone
    decided_by TEXT,
    shown {integer} NOT NULL,                   -- 1: its card was sent
    made_at {real} NOT NULL,
    decided_at {real}
);
CREATE INDEX idx_proposals_made ON proposals(made_at);
CREATE INDEX idx_proposals_unshown ON proposals(made_at) WHERE shown = 0;
CREATE INDEX idx_proposals_conversation ON proposals(conversation_id) WHERE conversation_id IS NOT NULL;
