-- The whole store on SQLite, as a fresh file gets it. `migrations/` brings older files to the same
-- shape and a test proves the two equal. Names and meanings of `sessions` and `messages` are those
-- other tools already read; everything below `-- ours` is added by us.

CREATE TABLE schema_version (version INTEGER NOT NULL);

CREATE TABLE state_meta (key TEXT PRIMARY KEY, value TEXT);

-- One conversation = one chain of compressions. Its id is the id of its first segment and never changes.
CREATE TABLE conversations (
    id TEXT PRIMARY KEY,
    tip_id TEXT NOT NULL,                        -- the segment that is written to
    owner_id TEXT,                               -- person; NULL belongs to the group, never to one of them
    origin_kind TEXT NOT NULL DEFAULT 'new',     -- new | branch | reset | delegate | child
    origin_session_id TEXT,
    rotations INTEGER NOT NULL DEFAULT 0,        -- how often the ledger compressed it
    created_at REAL NOT NULL
);
CREATE INDEX idx_conversations_owner ON conversations(owner_id) WHERE owner_id IS NOT NULL;

CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    user_id TEXT,
    session_key TEXT,
    chat_id TEXT,
    chat_type TEXT,
    thread_id TEXT,
    display_name TEXT,
    origin_json TEXT,
    expiry_finalized INTEGER DEFAULT 0,
    model TEXT,
    model_config TEXT,
    system_prompt TEXT,
    parent_session_id TEXT REFERENCES sessions(id),
    started_at REAL NOT NULL,
    ended_at REAL,
    end_reason TEXT,
    message_count INTEGER DEFAULT 0,
    tool_call_count INTEGER DEFAULT 0,
    input_tokens INTEGER DEFAULT 0,
    output_tokens INTEGER DEFAULT 0,
    cache_read_tokens INTEGER DEFAULT 0,
    cache_write_tokens INTEGER DEFAULT 0,
    reasoning_tokens INTEGER DEFAULT 0,
    cwd TEXT,
    git_branch TEXT,
    git_repo_root TEXT,
    billing_provider TEXT,
    billing_base_url TEXT,
    billing_mode TEXT,
    estimated_cost_usd REAL,
    actual_cost_usd REAL,
    cost_status TEXT,
    cost_source TEXT,
    pricing_version TEXT,
    title TEXT,
    api_call_count INTEGER DEFAULT 0,
    handoff_state TEXT,
    handoff_platform TEXT,
    handoff_error TEXT,
    compression_failure_cooldown_until REAL,
    compression_failure_error TEXT,
    compression_fallback_streak INTEGER NOT NULL DEFAULT 0,
    profile_name TEXT,
    rewind_count INTEGER NOT NULL DEFAULT 0,
    archived INTEGER NOT NULL DEFAULT 0,
    -- ours
    root_id TEXT NOT NULL,                       -- the conversation; equal to id on its first segment
    last_active REAL NOT NULL,                   -- newest message, else started_at
    preview TEXT,                                -- beginning of the first user text; NULL until there is one
    listed INTEGER NOT NULL DEFAULT 1,           -- 1 on the one row that stands for its conversation in lists
    active_minute INTEGER NOT NULL DEFAULT 0     -- last_active in minutes: set by a trigger, and by whoever moves it
);
-- Lists are ordered by last activity. An index on last_active itself would be written to with every message; the minute
-- changes seldom, and within a minute few rows are left to sort.
CREATE TRIGGER sessions_minute_insert AFTER INSERT ON sessions
    BEGIN UPDATE sessions SET active_minute = CAST(new.last_active / 60 AS INTEGER) WHERE id = new.id; END;
CREATE UNIQUE INDEX idx_sessions_title_unique ON sessions(title) WHERE title IS NOT NULL;
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
--   taken back  active=0, compacted=0
--   summarised  active=0, compacted=1
--   replaced    replaced>0: hidden from every reader, removed by retention
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,        -- never used twice: the search index follows it
    session_id TEXT NOT NULL REFERENCES sessions(id),
    role TEXT NOT NULL,
    content TEXT,
    tool_call_id TEXT,
    tool_calls TEXT,
    tool_name TEXT,
    effect_disposition TEXT,
    timestamp REAL NOT NULL,
    token_count INTEGER,
    finish_reason TEXT,
    reasoning TEXT,
    reasoning_content TEXT,
    reasoning_details TEXT,
    codex_reasoning_items TEXT,
    codex_message_items TEXT,
    platform_message_id TEXT,
    observed INTEGER NOT NULL DEFAULT 0,
    active INTEGER NOT NULL DEFAULT 1,
    compacted INTEGER NOT NULL DEFAULT 0,
    api_content TEXT,
    -- ours
    content_kind TEXT NOT NULL DEFAULT 'text',   -- text | json | escaped (see values.py)
    escaped TEXT,                                -- names of the other columns that are escaped, NULL for none
    replaced INTEGER NOT NULL DEFAULT 0,        -- when, in epoch seconds; 0 for a row that stands
    turn_id TEXT,
    person_id TEXT                               -- who wrote it, where that is known
);
CREATE INDEX idx_messages_session ON messages(session_id, id);
CREATE INDEX idx_messages_platform_msg_id ON messages(session_id, platform_message_id)
    WHERE platform_message_id IS NOT NULL;
CREATE INDEX idx_messages_hidden ON messages(id) WHERE (active = 0 AND compacted = 0) OR replaced > 0;

-- Rows the search index must forget; filled by whoever removes messages, emptied by the feeder.
CREATE TABLE search_forget (message_id INTEGER PRIMARY KEY);

CREATE TABLE session_model_usage (
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    model TEXT NOT NULL,
    billing_provider TEXT NOT NULL DEFAULT '',
    billing_base_url TEXT NOT NULL DEFAULT '',
    billing_mode TEXT NOT NULL DEFAULT '',
    task TEXT NOT NULL DEFAULT '',
    api_call_count INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens INTEGER NOT NULL DEFAULT 0,
    estimated_cost_usd REAL NOT NULL DEFAULT 0,
    actual_cost_usd REAL NOT NULL DEFAULT 0,
    cost_status TEXT,
    cost_source TEXT,
    first_seen REAL,
    last_seen REAL,
    PRIMARY KEY (session_id, model, billing_provider, billing_base_url, billing_mode, task)
);

-- Where people write from, and what that place points at. A route may name a session that has no row
-- yet (an imported index); the row is made at first use.
CREATE TABLE routes (
    scope TEXT NOT NULL DEFAULT '',              -- name of the sessions folder, never its path
    session_key TEXT NOT NULL,
    session_id TEXT,
    entry_json TEXT NOT NULL,                    -- the rest of the entry, as other tools read it
    updated_at REAL NOT NULL,
    PRIMARY KEY (scope, session_key)
);
CREATE INDEX idx_routes_session ON routes(session_id);
CREATE INDEX idx_routes_updated ON routes(scope, updated_at);

CREATE TABLE compression_locks (
    session_id TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    acquired_at REAL NOT NULL,
    expires_at REAL NOT NULL
);

CREATE TABLE people (
    id TEXT PRIMARY KEY,
    display_name TEXT,
    role TEXT NOT NULL DEFAULT 'guest',          -- owner | admin | member | guest
    zone TEXT,                                   -- IANA
    created_at REAL NOT NULL
);
CREATE TABLE identities (
    platform TEXT NOT NULL,
    account TEXT NOT NULL DEFAULT '',            -- which of our accounts on that platform
    native_id TEXT NOT NULL,
    person_id TEXT NOT NULL REFERENCES people(id) ON DELETE CASCADE,
    display_name TEXT,
    created_at REAL NOT NULL,
    PRIMARY KEY (platform, account, native_id)
);
CREATE INDEX idx_identities_person ON identities(person_id);
