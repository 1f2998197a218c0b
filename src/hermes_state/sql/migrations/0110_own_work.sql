-- From 0.1: work that Hermes does on its own (schedules, background processes, child conversations, held answers).

ALTER TABLE inbox ADD COLUMN job_id TEXT; -- the job whose occurrence it is
CREATE INDEX idx_inbox_job ON inbox(job_id, id) WHERE job_id IS NOT NULL;
CREATE INDEX idx_inbox_job_ended ON inbox(job_id, ended_at) WHERE job_id IS NOT NULL;

-- Jobs: what Hermes does at set times. An occurrence is an inbox row `hermes:job:ID:INSTANT`, stored in the transaction
-- that moves `next_at`; so each instant is settled once, by whichever process sees it first.
CREATE TABLE jobs (
    id {key},
    name TEXT NOT NULL,
    person_id TEXT NOT NULL,
    conversation_id TEXT,                       -- where it was made; NULL: not in a conversation, or it was deleted
    route TEXT NOT NULL,                        -- the chat that gets its answers
    schedule TEXT NOT NULL,                     -- for people
    kind TEXT NOT NULL,                         -- cron | interval | once
    expression TEXT NOT NULL,                   -- see hermes_agent/schedules.py
    zone TEXT NOT NULL,                         -- IANA
    task TEXT NOT NULL,                         -- JSON: prompt or text, script, skills, model, provider, toolsets, budget
    address TEXT NOT NULL,                      -- JSON: where the answers go
    missed TEXT NOT NULL,                       -- what /catchup runs: latest | skip | a number
    state TEXT NOT NULL,                        -- active | paused | done
    next_at {real},                             -- the next instant; NULL: there is none
    made_at {real} NOT NULL,
    changed_at {real} NOT NULL
);
CREATE INDEX idx_jobs_due ON jobs(next_at) WHERE state = 'active';
CREATE INDEX idx_jobs_route ON jobs(route);
CREATE INDEX idx_jobs_conversation ON jobs(conversation_id) WHERE conversation_id IS NOT NULL;
-- Conversations that a turn delegated work to. The children of one call share (turn_id, call_id).
CREATE TABLE children (
    conversation_id {key},
    parent_id TEXT NOT NULL,                    -- the conversation that delegated
    turn_id TEXT NOT NULL,                      -- the turn that delegated
    call_id TEXT NOT NULL,                      -- its call, by the name of its mark
    position {integer} NOT NULL,                -- in the call
    depth {integer} NOT NULL,                   -- 1: a child of a person's conversation
    inbox_id {integer} NOT NULL,                -- the row that its turn claims
    goal TEXT NOT NULL,
    spec TEXT NOT NULL,                         -- JSON: what it works with, and where its parent's results go
    budget_usd {real},                          -- its spending limit
    state TEXT NOT NULL,                        -- pending | running | done | failed | cancelled
    result TEXT,                                -- its answer, or the reason why there is none
    returned TEXT,                              -- NULL | call | later | row | dropped: how the call's results reached the parent
    created_at {real} NOT NULL,
    started_at {real},
    ended_at {real}
);
CREATE UNIQUE INDEX idx_children_call ON children(turn_id, call_id, position);
CREATE INDEX idx_children_parent ON children(parent_id);
CREATE INDEX idx_children_open ON children(created_at)
    WHERE state IN ('pending', 'running') OR returned IS NULL OR returned = 'later';
CREATE INDEX idx_children_ended ON children(ended_at) WHERE ended_at IS NOT NULL;
-- The model calls of each turn: model, usage, and the hash of the bytes that were sent. Written with the row that the
-- call led to; a call whose process died before that has no row.
CREATE TABLE model_calls (
    turn_id TEXT NOT NULL REFERENCES turns(id) ON DELETE CASCADE,
    number {integer} NOT NULL,                  -- from 1, in the order of the turn
    attempt {integer} NOT NULL,                 -- of the turn
    task TEXT NOT NULL,                         -- '' for the turn's own steps; compression
    session_id TEXT NOT NULL,                   -- the segment whose rows it read
    model TEXT NOT NULL,
    provider TEXT NOT NULL,
    outcome TEXT NOT NULL,                      -- the finish reason, interrupted, or the kind of the error
    retries {integer} NOT NULL,
    input_tokens {integer},                     -- NULL: not reported
    output_tokens {integer},
    cache_read_tokens {integer},
    cost_usd {real},                            -- NULL: not known
    sha256 TEXT,                                -- of the last request that was sent; NULL: none was, or not kept
    request TEXT,                               -- JSON: what a renderer needs besides prefix and rows
    at {real} NOT NULL,
    seconds {real} NOT NULL,
    PRIMARY KEY (turn_id, number)
);

-- Chats whose answers are held until the owner sends them (/hold), or are not although `delivery.hold` names them.
CREATE TABLE held_chats (
    platform TEXT NOT NULL,
    chat_id TEXT NOT NULL,
    held {integer} NOT NULL,                    -- 1 or 0
    changed_by TEXT,                            -- person
    changed_at {real} NOT NULL,
    PRIMARY KEY (platform, chat_id)
);

-- What the owner did to held answers, for the model. The next turn of the conversation takes the rows into its message.
CREATE TABLE answer_changes (
    id {identity},
    conversation_id TEXT NOT NULL,
    note TEXT NOT NULL,
    at {real} NOT NULL
);
CREATE INDEX idx_answer_changes_conversation ON answer_changes(conversation_id);
CREATE INDEX idx_outbox_held ON outbox(platform, chat_id, id) WHERE state = 'held';
-- Background commands of the terminal tool. The folder of a process, in the home of its machine, holds its output.
CREATE TABLE processes (
    id {key},
    conversation_id TEXT NOT NULL,
    turn_id TEXT NOT NULL,
    call_id TEXT NOT NULL,
    person_id TEXT,
    route TEXT,                                 -- the lane of its conversation, and of the notice of its end
    machine TEXT NOT NULL,
    supervisor TEXT,                            -- process id and start of its supervisor; NULL until it has started
    command TEXT NOT NULL,
    workdir TEXT NOT NULL,
    wall TEXT NOT NULL,
    opening TEXT NOT NULL,                      -- what it may do beyond its wall, in words; empty: nothing
    address TEXT,                               -- JSON: the chat that is told; NULL: nobody
    notify {integer} NOT NULL,                  -- 1: its end becomes an inbox row
    state TEXT NOT NULL,                        -- running | exited | killed | timed_out | lost
    exit_code {integer},
    trouble TEXT,                               -- the limit that ended it, or why its wall failed
    output_bytes {integer} NOT NULL DEFAULT 0,
    started_at {real} NOT NULL,
    ends_by {real} NOT NULL,
    ended_at {real}
);
CREATE INDEX idx_processes_running ON processes(route) WHERE state = 'running';
CREATE INDEX idx_processes_conversation ON processes(conversation_id, started_at);
CREATE INDEX idx_processes_ended ON processes(ended_at) WHERE ended_at IS NOT NULL;
