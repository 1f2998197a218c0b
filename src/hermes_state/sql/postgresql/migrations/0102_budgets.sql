-- Schema 102: spending (see that section of the schema for what the tables mean).
-- What calls used, by day, for reports: written in the commit that counts them on their session. The days are
-- those of the machine that wrote it. Rows of a deleted session become rows of session '': sums without a name.
CREATE TABLE usage_days (
    session_id TEXT NOT NULL,
    day TEXT NOT NULL,                           -- 2026-11-01
    person_id TEXT NOT NULL,                     -- '' where nobody is known
    model TEXT NOT NULL,
    billing_provider TEXT NOT NULL,
    task TEXT NOT NULL,                          -- '' for the chat itself
    calls BIGINT NOT NULL,
    unpriced_calls BIGINT NOT NULL,              -- those of `calls` whose cost nobody knows
    input_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    cache_read_tokens BIGINT NOT NULL,
    cache_write_tokens BIGINT NOT NULL,
    cost_usd DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (session_id, day, person_id, model, billing_provider, task)
);
CREATE INDEX idx_usage_days_day ON usage_days(day);

-- What counts against a spending limit: settled and reserved together. Kept while any limit is configured.
CREATE TABLE budget_tallies (
    scope TEXT NOT NULL,                         -- day | person_day | conversation
    subject TEXT NOT NULL,                       -- '' | person | conversation
    period TEXT NOT NULL,                        -- the day, '' for a conversation
    nano_usd BIGINT NOT NULL,                    -- whole numbers: sums of many processes stay exact
    tokens BIGINT NOT NULL,
    warned_nano_usd BIGINT,                      -- the limit a warning was given about
    warned_tokens BIGINT,
    updated_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (scope, subject, period)
);

-- Calls that are being made, at their estimate. A row that outlives its process stays counted: it may have been billed.
CREATE TABLE budget_reservations (
    id TEXT COLLATE "C" PRIMARY KEY,
    day TEXT NOT NULL,
    person_id TEXT NOT NULL,
    person_day TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    model TEXT NOT NULL,
    task TEXT NOT NULL,
    nano_usd BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    made_at DOUBLE PRECISION NOT NULL
);
