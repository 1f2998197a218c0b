-- Schema 101: the tables of the work (see the section "Work" of the schema for what they mean).
-- Work: what came in, who works on it, what goes out, and the marks that make a killed turn recoverable.
-- Rows point at conversations, sessions and people by id without foreign keys: a conversation may get its first
-- session row later than its lease, and `work.erase` removes all of it when a conversation is deleted.

-- Who may write to a conversation. The row stays after a release, so that its fence never goes back.
CREATE TABLE leases (
    conversation_id TEXT PRIMARY KEY,
    fence INTEGER NOT NULL,
    holder TEXT,                                 -- NULL: free
    acquired_at REAL,
    expires_at REAL,
    ttl REAL                                     -- of the last renewal: more than this left means the clock went back
);

-- One row per message and version. The whole message for an allowed one, key and reason for a refused one.
CREATE TABLE inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,        -- the order of a route
    platform TEXT NOT NULL,
    account TEXT NOT NULL,
    chat_id TEXT NOT NULL,
    message_id TEXT NOT NULL,
    version INTEGER NOT NULL,                    -- 0 as first sent, then one per edit
    route TEXT,
    person_id TEXT,
    trace_id TEXT NOT NULL,
    payload TEXT,                                -- JSON
    state TEXT NOT NULL,                         -- queued | claimed | answered | error | silent | dropped | superseded | refused
    turn_id TEXT,
    reason TEXT,
    received_at REAL NOT NULL,
    ended_at REAL
);
CREATE UNIQUE INDEX idx_inbox_message ON inbox(platform, account, chat_id, message_id, version);
CREATE INDEX idx_inbox_queued ON inbox(route, id) WHERE state = 'queued';
CREATE INDEX idx_inbox_refused ON inbox(id) WHERE state = 'refused';
CREATE INDEX idx_inbox_turn ON inbox(turn_id) WHERE turn_id IS NOT NULL;
CREATE INDEX idx_inbox_trace ON inbox(trace_id);
CREATE INDEX idx_inbox_ended ON inbox(ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE turns (
    id TEXT PRIMARY KEY,
    conversation_id TEXT NOT NULL,
    session_id TEXT NOT NULL,                    -- the segment it wrote to last
    route TEXT,
    trace_id TEXT NOT NULL,
    fence INTEGER NOT NULL,                      -- of the attempt that runs
    attempt INTEGER NOT NULL,
    state TEXT NOT NULL,                         -- running | done | failed | cancelled | parked
    reason TEXT,
    progress TEXT,                               -- JSON, for people who look on
    started_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    ended_at REAL
);
CREATE INDEX idx_turns_conversation ON turns(conversation_id, started_at);
CREATE INDEX idx_turns_running ON turns(started_at) WHERE state = 'running';
CREATE INDEX idx_turns_trace ON turns(trace_id);
CREATE INDEX idx_turns_ended ON turns(ended_at) WHERE ended_at IS NOT NULL;

-- A tool call that has started and not finished has an unknown outcome: it is reported, never repeated.
CREATE TABLE effects (
    turn_id TEXT NOT NULL,
    call_id TEXT NOT NULL,
    tool TEXT NOT NULL,
    attempt INTEGER NOT NULL,                    -- of the turn that started it
    started_at REAL NOT NULL,
    finished_at REAL,
    result TEXT,                                 -- where the result is, not the result
    PRIMARY KEY (turn_id, call_id)
);
CREATE INDEX idx_effects_started ON effects(started_at);

-- What we owe a chat. `attempts` is also the fence of the sender that has it.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,        -- the order of a chat
    dedup_key TEXT NOT NULL,
    platform TEXT NOT NULL,
    account TEXT NOT NULL,
    chat_id TEXT NOT NULL,
    conversation_id TEXT,
    turn_id TEXT,
    trace_id TEXT NOT NULL,
    payload TEXT NOT NULL,                       -- JSON
    state TEXT NOT NULL,                         -- draft | pending | sending | sent | failed | unknown | dropped
    attempts INTEGER NOT NULL DEFAULT 0,
    give_up_after INTEGER NOT NULL,              -- attempts
    next_attempt_at REAL,
    sender TEXT,
    sending_until REAL,
    platform_ids TEXT NOT NULL DEFAULT '[]',     -- JSON: what stands in the chat, in order
    draft TEXT,                                  -- JSON: what the chat shows while it is not final
    error TEXT,
    created_at REAL NOT NULL,
    ended_at REAL
);
CREATE UNIQUE INDEX idx_outbox_dedup ON outbox(dedup_key);
CREATE INDEX idx_outbox_open ON outbox(platform, account, chat_id, id) WHERE state IN ('pending', 'sending');
CREATE INDEX idx_outbox_due ON outbox(next_attempt_at) WHERE state = 'pending';
CREATE INDEX idx_outbox_sending ON outbox(sending_until) WHERE state = 'sending';
CREATE INDEX idx_outbox_dead ON outbox(id) WHERE state IN ('failed', 'unknown');
CREATE INDEX idx_outbox_turn ON outbox(turn_id) WHERE turn_id IS NOT NULL;
CREATE INDEX idx_outbox_conversation ON outbox(conversation_id) WHERE conversation_id IS NOT NULL;
CREATE INDEX idx_outbox_trace ON outbox(trace_id);
CREATE INDEX idx_outbox_ended ON outbox(ended_at) WHERE ended_at IS NOT NULL;

-- One exact call, one turn, one answer. A grant for the session or for always is a standing rule of the requester.
CREATE TABLE approvals (
    id TEXT PRIMARY KEY,
    conversation_id TEXT NOT NULL,
    turn_id TEXT NOT NULL,
    call_hash TEXT NOT NULL,
    call TEXT NOT NULL,                          -- JSON: what the approver is shown
    requester_id TEXT,
    approver_id TEXT,                            -- who may decide; then who did
    state TEXT NOT NULL,                         -- pending | granted | used | denied | lapsed | revoked
    scope TEXT,                                  -- once | session | always, when granted
    reason TEXT,
    created_at REAL NOT NULL,
    expires_at REAL NOT NULL,                    -- of the question
    rule_expires_at REAL,                        -- of a standing rule, NULL for never
    decided_at REAL,
    used_at REAL
);
CREATE UNIQUE INDEX idx_approvals_call ON approvals(turn_id, call_hash);
CREATE INDEX idx_approvals_pending ON approvals(expires_at) WHERE state = 'pending';
CREATE INDEX idx_approvals_standing ON approvals(call_hash, requester_id)
    WHERE state = 'granted' AND scope IN ('session', 'always');
CREATE INDEX idx_approvals_conversation ON approvals(conversation_id);
CREATE INDEX idx_approvals_decided ON approvals(decided_at) WHERE decided_at IS NOT NULL;

-- The rendered prefix of a conversation, byte for byte, shared by hash.
CREATE TABLE prefix_blobs (
    hash TEXT PRIMARY KEY,                       -- SHA-256
    bytes BLOB NOT NULL,
    created_at REAL NOT NULL
);
CREATE TABLE prefix_epochs (
    conversation_id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    hash TEXT NOT NULL REFERENCES prefix_blobs(hash),
    reason TEXT NOT NULL,
    started_at REAL NOT NULL,
    PRIMARY KEY (conversation_id, epoch)
);
CREATE INDEX idx_prefix_epochs_hash ON prefix_epochs(hash);
CREATE TABLE prefix_breaks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation_id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    expected TEXT NOT NULL,
    seen TEXT NOT NULL,
    reason TEXT NOT NULL,
    at REAL NOT NULL
);
CREATE INDEX idx_prefix_breaks_conversation ON prefix_breaks(conversation_id, id);
-- Counted apart: the rows above are bounded. The row of conversation '' is the total and never falls.
CREATE TABLE prefix_break_counts (conversation_id TEXT PRIMARY KEY, breaks INTEGER NOT NULL);

-- What happened, per conversation, bounded. `seq` counts within the conversation.
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    turn_id TEXT,
    trace_id TEXT,
    detail TEXT,                                 -- JSON
    at REAL NOT NULL
);
CREATE INDEX idx_events_conversation ON events(conversation_id, seq);
CREATE INDEX idx_events_trace ON events(trace_id) WHERE trace_id IS NOT NULL;
