-- The schema of release 0.1, for both engines. It never changes: what came later is in migrations/, and a fresh database
-- runs those, too. `{integer}`, `{real}`, `{bytes}`, `{key}` and `{identity}` stand for each engine's types
-- (storage/statements.py); a line that ends in `-- @sqlite` or `-- @postgresql` is for that engine only. Names and meanings in `sessions` and `messages` are those that plug-ins of hermes-agent read; the
-- columns below `-- ours` are our additions.

CREATE TABLE schema_version (version {integer} NOT NULL);

CREATE TABLE state_meta (key TEXT PRIMARY KEY, value TEXT);

-- One conversation = one chain of compressions. Its id is the id of its first segment and never changes.
CREATE TABLE conversations (
    id {key},
    tip_id TEXT NOT NULL,                       -- the segment that is written to
    owner_id TEXT,                              -- person; NULL: the group's, never one member's
    origin_kind TEXT NOT NULL DEFAULT 'new',    -- new | branch | reset | delegate | child
    origin_session_id TEXT,
    rotations {integer} NOT NULL DEFAULT 0,     -- how often the ledger compressed it
    created_at {real} NOT NULL
);
CREATE INDEX idx_conversations_owner ON conversations(owner_id) WHERE owner_id IS NOT NULL;

CREATE TABLE sessions (
    id {key},
    source TEXT NOT NULL,
    user_id TEXT,
    session_key TEXT,
    chat_id TEXT,
    chat_type TEXT,
    thread_id TEXT,
    display_name TEXT,
    origin_json TEXT,
    expiry_finalized {integer} DEFAULT 0,
    model TEXT,
    model_config TEXT,
    system_prompt TEXT,
    parent_session_id TEXT REFERENCES sessions(id),
    started_at {real} NOT NULL,
    ended_at {real},
    end_reason TEXT,
    message_count {integer} DEFAULT 0,
    tool_call_count {integer} DEFAULT 0,
    input_tokens {integer} DEFAULT 0,
    output_tokens {integer} DEFAULT 0,
    cache_read_tokens {integer} DEFAULT 0,
    cache_write_tokens {integer} DEFAULT 0,
    reasoning_tokens {integer} DEFAULT 0,
    cwd TEXT,
    git_branch TEXT,
    git_repo_root TEXT,
    billing_provider TEXT,
    billing_base_url TEXT,
    billing_mode TEXT,
    estimated_cost_usd {real},
    actual_cost_usd {real},
    cost_status TEXT,
    cost_source TEXT,
    pricing_version TEXT,
    title TEXT,
    api_call_count {integer} DEFAULT 0,
    handoff_state TEXT,
    handoff_platform TEXT,
    handoff_error TEXT,
    compression_failure_cooldown_until {real},
    compression_failure_error TEXT,
    compression_fallback_streak {integer} NOT NULL DEFAULT 0,
    profile_name TEXT,
    rewind_count {integer} NOT NULL DEFAULT 0,
    archived {integer} NOT NULL DEFAULT 0,
    -- ours
    root_id TEXT NOT NULL,                      -- the conversation; equal to id on its first segment
    last_active {real} NOT NULL,                -- newest message, else started_at
    preview TEXT,                               -- beginning of the first user text; NULL before it
    -- last_active in minutes, for lists. An index on last_active itself would be written with every message; the minute
    -- changes seldom, and few rows of one minute remain to be sorted. SQLite: the trigger and each update set it.
    active_minute INTEGER NOT NULL DEFAULT 0, -- @sqlite
    active_minute BIGINT GENERATED ALWAYS AS (floor(last_active / 60)::bigint) STORED, -- @postgresql
    listed {integer} NOT NULL DEFAULT 1         -- 1 on the one row that represents its conversation in lists
);
CREATE TRIGGER sessions_minute_insert AFTER INSERT ON sessions -- @sqlite
    BEGIN UPDATE sessions SET active_minute = CAST(new.last_active / 60 AS INTEGER) WHERE id = new.id; END; -- @sqlite
CREATE INDEX idx_sessions_title ON sessions(title) WHERE title IS NOT NULL;
CREATE INDEX idx_sessions_root ON sessions(root_id);
CREATE INDEX idx_sessions_parent ON sessions(parent_session_id) WHERE parent_session_id IS NOT NULL;
CREATE INDEX idx_sessions_started ON sessions(started_at DESC);
CREATE INDEX idx_sessions_active ON sessions(active_minute DESC) WHERE listed = 1 AND archived = 0;
CREATE INDEX idx_sessions_archived ON sessions(archived) WHERE archived <> 0;
CREATE INDEX idx_sessions_source ON sessions(source, started_at DESC);
CREATE INDEX idx_sessions_session_key ON sessions(session_key, started_at DESC) WHERE session_key IS NOT NULL;
CREATE INDEX idx_sessions_gateway_peer
    ON sessions(source, user_id, chat_id, chat_type, thread_id, started_at DESC) WHERE session_key IS NOT NULL;
CREATE INDEX idx_sessions_handoff_state ON sessions(handoff_state, started_at) WHERE handoff_state IS NOT NULL;

-- The transcript. Rows are added and change state; only delete and prune remove them.
--   live        active=1
--   undone      active=0, compacted=0
--   summarised  active=0, compacted=1
--   replaced    replaced>0: hidden from every reader, removed by retention
CREATE TABLE messages (
    id {identity},                              -- never used twice: the search index follows it
    session_id TEXT NOT NULL REFERENCES sessions(id),
    role TEXT NOT NULL,
    content TEXT,
    tool_call_id TEXT,
    tool_calls TEXT,
    tool_name TEXT,
    effect_disposition TEXT,
    timestamp {real} NOT NULL,
    token_count {integer},
    finish_reason TEXT,
    reasoning TEXT,
    reasoning_content TEXT,
    reasoning_details TEXT,
    codex_reasoning_items TEXT,
    codex_message_items TEXT,
    platform_message_id TEXT,
    observed {integer} NOT NULL DEFAULT 0,
    active {integer} NOT NULL DEFAULT 1,
    compacted {integer} NOT NULL DEFAULT 0,
    api_content TEXT,
    -- ours
    content_kind TEXT NOT NULL DEFAULT 'text',  -- text | json | escaped (see columns.py)
    escaped TEXT,                               -- names of the other columns that are escaped, NULL for none
    replaced {integer} NOT NULL DEFAULT 0,      -- when, in epoch seconds; 0 for a valid row
    turn_id TEXT,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(), -- @postgresql
    person_id TEXT                              -- who wrote it, if known
);
-- Ids do not commit in order on PostgreSQL: followers of the transcript and of the events use (xid, id).
CREATE INDEX idx_messages_feed ON messages(xid, id); -- @postgresql
CREATE INDEX idx_messages_session ON messages(session_id, id);
CREATE INDEX idx_messages_platform_msg_id ON messages(session_id, platform_message_id)
    WHERE platform_message_id IS NOT NULL;
CREATE INDEX idx_messages_hidden ON messages(id) WHERE (active = 0 AND compacted = 0) OR replaced > 0;

-- Rows that the search index must remove; filled with every removal of messages, emptied by the feeder.
CREATE TABLE search_forget (message_id {integer} PRIMARY KEY);

CREATE TABLE session_model_usage (
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    model TEXT NOT NULL,
    billing_provider TEXT NOT NULL DEFAULT '',
    billing_base_url TEXT NOT NULL DEFAULT '',
    billing_mode TEXT NOT NULL DEFAULT '',
    task TEXT NOT NULL DEFAULT '',
    api_call_count {integer} NOT NULL DEFAULT 0,
    input_tokens {integer} NOT NULL DEFAULT 0,
    output_tokens {integer} NOT NULL DEFAULT 0,
    cache_read_tokens {integer} NOT NULL DEFAULT 0,
    cache_write_tokens {integer} NOT NULL DEFAULT 0,
    reasoning_tokens {integer} NOT NULL DEFAULT 0,
    estimated_cost_usd {real} NOT NULL DEFAULT 0,
    actual_cost_usd {real} NOT NULL DEFAULT 0,
    cost_status TEXT,
    cost_source TEXT,
    first_seen {real},
    last_seen {real},
    PRIMARY KEY (session_id, model, billing_provider, billing_base_url, billing_mode, task)
);

-- Routes: the chats people write from, and the session of each. A route may name a session that has no row yet (an
-- imported index); the row is created at first use.
CREATE TABLE routes (
    scope TEXT NOT NULL DEFAULT '',             -- name of the sessions folder, never its path
    session_key TEXT NOT NULL,
    session_id TEXT,
    entry_json TEXT NOT NULL,                   -- the rest of the entry, as other tools read it
    updated_at {real} NOT NULL,
    PRIMARY KEY (scope, session_key)
);
CREATE INDEX idx_routes_session ON routes(session_id);
CREATE INDEX idx_routes_updated ON routes(scope, updated_at);

CREATE TABLE compression_locks (
    session_id TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    acquired_at {real} NOT NULL,
    expires_at {real} NOT NULL
);

CREATE TABLE people (
    id {key},
    display_name TEXT,
    role TEXT NOT NULL DEFAULT 'guest',         -- owner | admin | member | guest
    zone TEXT,                                  -- IANA
    created_at {real} NOT NULL
);
CREATE TABLE identities (
    platform TEXT NOT NULL,
    account TEXT NOT NULL DEFAULT '',           -- which of our accounts on that platform
    native_id TEXT NOT NULL,
    person_id TEXT NOT NULL REFERENCES people(id) ON DELETE CASCADE,
    display_name TEXT,
    created_at {real} NOT NULL,
    PRIMARY KEY (platform, account, native_id)
);
CREATE INDEX idx_identities_person ON identities(person_id);

-- Who was let in or kept out by hand. An account of '' means any of ours on that platform.
CREATE TABLE pairings (
    platform TEXT NOT NULL,
    account TEXT NOT NULL DEFAULT '',
    native_id TEXT NOT NULL,
    state TEXT NOT NULL,                        -- paired | revoked
    changed_at {real} NOT NULL,
    PRIMARY KEY (platform, account, native_id)
);

-- Who asked to be let in, with a salted hash of their code; deleted when it is used or expired.
CREATE TABLE pairing_requests (
    platform TEXT NOT NULL,
    account TEXT NOT NULL DEFAULT '',
    native_id TEXT NOT NULL,
    display_name TEXT,
    salt TEXT NOT NULL,
    code_hash TEXT NOT NULL,
    requested_at {real} NOT NULL,
    expires_at {real} NOT NULL,
    PRIMARY KEY (platform, account, native_id)
);

-- How often a code was wrong lately; issuing or approving a code locks this row.
CREATE TABLE pairing_guards (
    platform TEXT PRIMARY KEY,
    failures {integer} NOT NULL,
    failed_at {real} NOT NULL,
    locked_until {real}                         -- NULL: not locked
);

-- Work: received messages, turns, outgoing messages, and the marks that make a killed turn recoverable.
-- Rows point at conversations, sessions and people by id without foreign keys: a conversation may get its first
-- session row later than its lease, and `retention.erase` removes all of it when a conversation is deleted.

-- Who may write to a conversation. The row stays after a release, so that its fence never goes back.
CREATE TABLE leases (
    conversation_id {key},
    fence {integer} NOT NULL,
    holder TEXT,                                -- NULL: free
    acquired_at {real},
    expires_at {real},
    ttl {real}                                  -- of the last renewal; a longer rest means the clock was set back
);

-- One row per message and version. The whole message for an allowed one, key and reason for a refused one.
CREATE TABLE inbox (
    id {identity},                              -- the order of a route
    platform TEXT NOT NULL,
    account TEXT NOT NULL,
    chat_id TEXT NOT NULL,
    message_id TEXT NOT NULL,
    version {integer} NOT NULL,                 -- 0 for the first version, then one per edit
    route TEXT,
    person_id TEXT,
    trace_id TEXT NOT NULL,
    payload TEXT,                               -- JSON
    state TEXT NOT NULL,                        -- queued | claimed | answered | error | silent | missed | dropped | superseded | refused
    turn_id TEXT,
    reason TEXT,
    received_at {real} NOT NULL,
    ended_at {real}
);
CREATE UNIQUE INDEX idx_inbox_message ON inbox(platform, account, chat_id, message_id, version);
CREATE INDEX idx_inbox_queued ON inbox(route, id) WHERE state = 'queued';
CREATE INDEX idx_inbox_refused ON inbox(id) WHERE state = 'refused';
CREATE INDEX idx_inbox_turn ON inbox(turn_id) WHERE turn_id IS NOT NULL;
CREATE INDEX idx_inbox_trace ON inbox(trace_id);
CREATE INDEX idx_inbox_ended ON inbox(ended_at) WHERE ended_at IS NOT NULL;

-- The read position in a platform's feed: written with the inbox row of its message.
CREATE TABLE platform_cursors (
    platform TEXT NOT NULL,
    account TEXT NOT NULL,
    name TEXT NOT NULL,                         -- which feed of the account: a mail folder, a channel; '' for one
    value TEXT NOT NULL,                        -- a position, as the adapter defines it
    moved_at {real} NOT NULL,
    PRIMARY KEY (platform, account, name)
);

CREATE TABLE turns (
    id {key},
    conversation_id TEXT NOT NULL,
    session_id TEXT NOT NULL,                   -- the segment it wrote to last
    route TEXT,
    trace_id TEXT NOT NULL,
    fence {integer} NOT NULL,                   -- of the running attempt
    attempt {integer} NOT NULL,
    state TEXT NOT NULL,                        -- running | waiting | done | failed | cancelled | given_up
    reason TEXT,                                -- of its end; while it waits, the question's id
    progress TEXT,                              -- JSON, for watchers
    started_at {real} NOT NULL,
    updated_at {real} NOT NULL,
    ended_at {real}
);
CREATE INDEX idx_turns_conversation ON turns(conversation_id, started_at);
CREATE INDEX idx_turns_running ON turns(started_at) WHERE state = 'running';
CREATE INDEX idx_turns_waiting ON turns(started_at) WHERE state = 'waiting';
CREATE INDEX idx_turns_trace ON turns(trace_id);
CREATE INDEX idx_turns_ended ON turns(ended_at) WHERE ended_at IS NOT NULL;

-- A tool call that has started and not finished has an unknown outcome: it is reported, never repeated.
CREATE TABLE effects (
    turn_id TEXT NOT NULL,
    call_id TEXT NOT NULL,
    tool TEXT NOT NULL,
    attempt {integer} NOT NULL,                 -- of the turn that started it
    started_at {real} NOT NULL,
    finished_at {real},
    result TEXT,                                -- where the result is, not the result
    PRIMARY KEY (turn_id, call_id)
);
CREATE INDEX idx_effects_started ON effects(started_at);

-- Messages for chats. `attempts` is also the fence of the item's sender.
CREATE TABLE outbox (
    id {identity},                              -- the order of a chat
    dedup_key TEXT NOT NULL,
    platform TEXT NOT NULL,
    account TEXT NOT NULL,
    chat_id TEXT NOT NULL,
    conversation_id TEXT,
    turn_id TEXT,
    trace_id TEXT NOT NULL,
    payload TEXT NOT NULL,                      -- JSON
    state TEXT NOT NULL,                        -- draft | held | pending | sending | sent | failed | unknown | dropped
    attempts {integer} NOT NULL DEFAULT 0,
    give_up_after {integer} NOT NULL,           -- attempts
    next_attempt_at {real},
    sender TEXT,
    sending_until {real},
    platform_ids TEXT NOT NULL DEFAULT '[]',    -- JSON: the messages in the chat, in order
    draft TEXT,                                 -- JSON: what the chat shows while it is not final
    error TEXT,
    created_at {real} NOT NULL,
    ended_at {real}
);
CREATE UNIQUE INDEX idx_outbox_dedup ON outbox(dedup_key);
CREATE INDEX idx_outbox_open ON outbox(platform, account, chat_id, id) WHERE state IN ('pending', 'sending');
CREATE INDEX idx_outbox_due ON outbox(next_attempt_at) WHERE state = 'pending';
CREATE INDEX idx_outbox_dead ON outbox(id) WHERE state IN ('failed', 'unknown');
CREATE INDEX idx_outbox_draft ON outbox(turn_id) WHERE state = 'draft';
CREATE INDEX idx_outbox_loose ON outbox(turn_id) WHERE turn_id IS NOT NULL AND conversation_id IS NULL;
CREATE INDEX idx_outbox_conversation ON outbox(conversation_id) WHERE conversation_id IS NOT NULL;
CREATE INDEX idx_outbox_trace ON outbox(trace_id);
CREATE INDEX idx_outbox_ended ON outbox(ended_at) WHERE ended_at IS NOT NULL;

-- Questions: one exact call, one turn, one answer. A yes becomes a row of `grants`.
CREATE TABLE approvals (
    id {key},
    conversation_id TEXT NOT NULL,
    turn_id TEXT NOT NULL,
    call_hash TEXT NOT NULL,
    call TEXT NOT NULL,                         -- JSON: shown to the approver
    requester_id TEXT,
    approver_id TEXT,                           -- who may decide; then who did
    state TEXT NOT NULL,                        -- pending | granted | used | denied | lapsed | revoked
    scope TEXT,                                 -- once | task | session | always, when granted
    reason TEXT,
    created_at {real} NOT NULL,
    expires_at {real} NOT NULL,                 -- of the question
    decided_at {real},
    used_at {real}
);
CREATE UNIQUE INDEX idx_approvals_call ON approvals(turn_id, call_hash);
CREATE INDEX idx_approvals_pending ON approvals(expires_at) WHERE state = 'pending';
CREATE INDEX idx_approvals_conversation ON approvals(conversation_id);
CREATE INDEX idx_approvals_decided ON approvals(decided_at) WHERE decided_at IS NOT NULL;

-- The permission of a person's yes: how much (kind, value), where (span), and until when (expires_at, uses_left).
CREATE TABLE grants (
    id {key},
    person_id TEXT,                             -- for whom; NULL: an unknown person, for one use in one turn
    conversation_id TEXT NOT NULL,
    turn_id TEXT NOT NULL,                      -- the task: the turn, or the one that started it
    kind TEXT NOT NULL,                         -- folder | network | tool | exact
    value TEXT NOT NULL,                        -- a path, nothing, a tool's name, a hash
    patterns TEXT,                              -- JSON: globs for a tool's arguments; NULL: any arguments
    shown TEXT NOT NULL,                        -- for people: the command or path that was asked about
    span TEXT NOT NULL,                         -- task | conversation | always
    uses_left {integer},                        -- NULL: unlimited
    expires_at {real},                          -- NULL: no end
    approval_id TEXT,                           -- the question that was answered
    granted_by TEXT,                            -- the person who said yes
    state TEXT NOT NULL,                        -- live | used | revoked
    reason TEXT,
    created_at {real} NOT NULL,
    ended_at {real}
);
CREATE INDEX idx_grants_person ON grants(person_id) WHERE state = 'live';
CREATE INDEX idx_grants_turn ON grants(turn_id);
CREATE INDEX idx_grants_conversation ON grants(conversation_id);
CREATE INDEX idx_grants_approval ON grants(approval_id);
CREATE INDEX idx_grants_ended ON grants(ended_at) WHERE ended_at IS NOT NULL;

-- Calls that left the wall, and who allowed them; written with the use of the permission.
CREATE TABLE wall_exits (
    id {identity},
    at {real} NOT NULL,
    person_id TEXT,
    conversation_id TEXT NOT NULL,
    turn_id TEXT NOT NULL,
    kind TEXT NOT NULL,                         -- command | write | read | plugin
    text TEXT NOT NULL,                         -- the command or the path
    workdir TEXT NOT NULL,
    opening TEXT NOT NULL,                      -- for people: what the wall let through for it
    digest TEXT NOT NULL,                       -- of the permitted call
    allowed_by TEXT NOT NULL,                   -- grant | config
    grants TEXT NOT NULL,                       -- JSON: the ids of the grants it used
    rule TEXT                                   -- the setting that allowed it
);
CREATE INDEX idx_wall_exits_conversation ON wall_exits(conversation_id);
CREATE INDEX idx_wall_exits_at ON wall_exits(at);

-- The rendered prefix of a conversation, byte for byte, shared by hash.
CREATE TABLE prefix_blobs (
    hash {key},                                 -- SHA-256
    bytes {bytes} NOT NULL,
    created_at {real} NOT NULL
);
CREATE TABLE prefix_epochs (
    conversation_id TEXT NOT NULL,
    epoch {integer} NOT NULL,
    hash TEXT NOT NULL REFERENCES prefix_blobs(hash),
    reason TEXT NOT NULL,
    started_at {real} NOT NULL,
    PRIMARY KEY (conversation_id, epoch)
);
CREATE INDEX idx_prefix_epochs_hash ON prefix_epochs(hash);
CREATE TABLE prefix_breaks (
    id {identity},
    conversation_id TEXT NOT NULL,
    epoch {integer} NOT NULL,
    expected TEXT NOT NULL,
    seen TEXT NOT NULL,
    reason TEXT NOT NULL,
    at {real} NOT NULL
);
CREATE INDEX idx_prefix_breaks_conversation ON prefix_breaks(conversation_id, id);
-- Counted separately: the rows above are bounded. The row of conversation '' is the total and never falls.
CREATE TABLE prefix_break_counts (conversation_id {key}, breaks {integer} NOT NULL);

-- The event log of each conversation, bounded. `seq` counts within the conversation.
CREATE TABLE events (
    id {identity},
    conversation_id TEXT NOT NULL,
    seq {integer} NOT NULL,
    kind TEXT NOT NULL,
    turn_id TEXT,
    trace_id TEXT,
    detail TEXT,                                -- JSON
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(), -- @postgresql
    at {real} NOT NULL
);
CREATE INDEX idx_events_feed ON events(xid, id); -- @postgresql
CREATE INDEX idx_events_conversation ON events(conversation_id, seq);
-- A turn's begin event is found through the turn, or through a later event of it.
CREATE INDEX idx_events_trace ON events(trace_id) WHERE trace_id IS NOT NULL AND kind <> 'turn.begun';

-- The text that a running turn is writing, for watchers in other processes and on other machines. Not part of the
-- history: written only while somebody watches, cleared when the turn ends, and left out of archives, copies and
-- backups.
CREATE TABLE live_views ( -- @sqlite
CREATE UNLOGGED TABLE live_views ( -- @postgresql
    conversation_id {key},
    watched_until {real} NOT NULL,
    turn_id TEXT,                               -- NULL: nothing is shown
    step {integer} NOT NULL DEFAULT 0,          -- how many steps this process has ended in the turn
    text TEXT NOT NULL DEFAULT ''               -- of the step that is being written
);

-- Spending. The usage of calls by day, for reports: written in the commit that counts them on their session. The days
-- are those of the writing machine. Rows of a deleted session become rows of session '': sums without a name.
CREATE TABLE usage_days (
    session_id TEXT NOT NULL,
    day TEXT NOT NULL,                          -- 2026-11-01
    person_id TEXT NOT NULL,                    -- '' for an unknown person
    model TEXT NOT NULL,
    billing_provider TEXT NOT NULL,
    task TEXT NOT NULL,                         -- '' for the chat itself
    calls {integer} NOT NULL,
    unpriced_calls {integer} NOT NULL,          -- those of `calls` with an unknown cost
    input_tokens {integer} NOT NULL,
    output_tokens {integer} NOT NULL,
    cache_read_tokens {integer} NOT NULL,
    cache_write_tokens {integer} NOT NULL,
    cost_usd {real} NOT NULL,
    PRIMARY KEY (session_id, day, person_id, model, billing_provider, task)
);
CREATE INDEX idx_usage_days_day ON usage_days(day);

-- Sums that count against a spending limit: settled and reserved together. Kept while any limit is configured.
CREATE TABLE budget_tallies (
    scope TEXT NOT NULL,                        -- day | month | person_day | person_month | conversation
    subject TEXT NOT NULL,                      -- '' | person | conversation
    period TEXT NOT NULL,                       -- the day or month, '' for a conversation
    nano_usd {integer} NOT NULL,                -- whole numbers: sums of many processes stay exact
    tokens {integer} NOT NULL,
    warned_nano_usd {integer},                  -- the limit a warning was given about
    warned_tokens {integer},
    updated_at {real} NOT NULL,
    PRIMARY KEY (scope, subject, period)
);

-- Running calls, at their estimate. A row that outlives its process stays counted: it may have been billed.
CREATE TABLE budget_reservations (
    id {key},
    day TEXT NOT NULL,
    person_id TEXT NOT NULL,
    person_day TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    model TEXT NOT NULL,
    task TEXT NOT NULL,
    nano_usd {integer} NOT NULL,
    tokens {integer} NOT NULL,
    made_at {real} NOT NULL
);
