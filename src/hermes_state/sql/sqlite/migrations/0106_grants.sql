-- Schema 106: a grant is a row with a size and an end, and what leaves the wall is logged. The standing rules of before
-- were bound to one call in a form that nothing asks for any more; such calls are asked about again.
UPDATE approvals SET state = 'revoked', reason = 'permissions are given in a new form since schema 106'
    WHERE state = 'granted';
DROP INDEX idx_approvals_standing;
ALTER TABLE approvals DROP COLUMN rule_expires_at;
-- What a person's yes permits: how much (kind, value), where (span), and until when (expires_at, uses_left).
CREATE TABLE grants (
    id TEXT PRIMARY KEY,
    person_id TEXT,                              -- for whom; NULL: somebody nobody knows, for one use in one turn
    conversation_id TEXT NOT NULL,
    turn_id TEXT NOT NULL,                       -- the task: the turn, or the one that started it
    kind TEXT NOT NULL,                          -- folder | network | tool | exact
    value TEXT NOT NULL,                         -- a path, nothing, a tool's name, a hash
    patterns TEXT,                               -- JSON: what a tool's arguments must match; NULL: anything
    shown TEXT NOT NULL,                         -- for people: the command or path that was asked about
    span TEXT NOT NULL,                          -- task | conversation | always
    uses_left INTEGER,                           -- NULL: as often as wanted
    expires_at REAL,                             -- NULL: no time is set
    approval_id TEXT,                            -- the question that was answered
    granted_by TEXT,                             -- the person who said yes
    state TEXT NOT NULL,                         -- live | used | revoked
    reason TEXT,
    created_at REAL NOT NULL,
    ended_at REAL
);
CREATE INDEX idx_grants_person ON grants(person_id) WHERE state = 'live';
CREATE INDEX idx_grants_turn ON grants(turn_id);
CREATE INDEX idx_grants_conversation ON grants(conversation_id);
CREATE INDEX idx_grants_approval ON grants(approval_id);
CREATE INDEX idx_grants_ended ON grants(ended_at) WHERE ended_at IS NOT NULL;

-- What left the wall, and who allowed it; written with the use of the permission.
CREATE TABLE wall_exits (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    person_id TEXT,
    conversation_id TEXT NOT NULL,
    turn_id TEXT NOT NULL,
    kind TEXT NOT NULL,                          -- command | write | read | plugin
    text TEXT NOT NULL,                          -- the command or the path
    workdir TEXT NOT NULL,
    opening TEXT NOT NULL,                       -- for people: what was open for it
    digest TEXT NOT NULL,                        -- of exactly what was permitted
    allowed_by TEXT NOT NULL,                    -- grant | config
    grants TEXT NOT NULL,                        -- JSON: the ids of the grants it used
    rule TEXT                                    -- the setting that allowed it
);
CREATE INDEX idx_wall_exits_conversation ON wall_exits(conversation_id);
CREATE INDEX idx_wall_exits_at ON wall_exits(at);
