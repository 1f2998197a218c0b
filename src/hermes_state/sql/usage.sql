-- Usage of sessions. A cost that was never given stays NULL: unknown is not free.

-- name: route
-- Locked: two calls at once must not both be the first one.
SELECT api_call_count, model, billing_provider, billing_base_url, billing_mode FROM sessions WHERE id = ? {lock}

-- name: add
UPDATE sessions SET
    input_tokens = COALESCE(input_tokens, 0) + ?,
    output_tokens = COALESCE(output_tokens, 0) + ?,
    cache_read_tokens = COALESCE(cache_read_tokens, 0) + ?,
    cache_write_tokens = COALESCE(cache_write_tokens, 0) + ?,
    reasoning_tokens = COALESCE(reasoning_tokens, 0) + ?,
    api_call_count = COALESCE(api_call_count, 0) + ?,
    estimated_cost_usd = COALESCE(COALESCE(estimated_cost_usd, 0) + CAST(? AS DOUBLE PRECISION), estimated_cost_usd),
    actual_cost_usd = COALESCE(COALESCE(actual_cost_usd, 0) + CAST(? AS DOUBLE PRECISION), actual_cost_usd),
    cost_status = COALESCE(?, cost_status), cost_source = COALESCE(?, cost_source),
    pricing_version = COALESCE(?, pricing_version)
WHERE id = ?
RETURNING api_call_count, model, billing_provider, billing_base_url, billing_mode

-- name: set
UPDATE sessions SET
    input_tokens = ?, output_tokens = ?, cache_read_tokens = ?, cache_write_tokens = ?, reasoning_tokens = ?,
    api_call_count = ?,
    estimated_cost_usd = COALESCE(CAST(? AS DOUBLE PRECISION), estimated_cost_usd),
    actual_cost_usd = COALESCE(CAST(? AS DOUBLE PRECISION), actual_cost_usd),
    cost_status = COALESCE(?, cost_status), cost_source = COALESCE(?, cost_source),
    pricing_version = COALESCE(?, pricing_version)
WHERE id = ?

-- name: set_route
UPDATE sessions SET model = ?, billing_provider = ?, billing_base_url = ?, billing_mode = ? WHERE id = ?

-- let: into_days
INSERT INTO usage_days AS d (
    session_id, day, person_id, model, billing_provider, task, calls, unpriced_calls,
    input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_usd
)

-- let: or_added
ON CONFLICT (session_id, day, person_id, model, billing_provider, task) DO UPDATE SET
    calls = d.calls + excluded.calls,
    unpriced_calls = d.unpriced_calls + excluded.unpriced_calls,
    input_tokens = d.input_tokens + excluded.input_tokens,
    output_tokens = d.output_tokens + excluded.output_tokens,
    cache_read_tokens = d.cache_read_tokens + excluded.cache_read_tokens,
    cache_write_tokens = d.cache_write_tokens + excluded.cache_write_tokens,
    cost_usd = d.cost_usd + excluded.cost_usd

-- name: by_day
-- The requester, else the conversation's owner.
{into_days}
SELECT s.id, ?, COALESCE(?, c.owner_id, ''), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
FROM sessions s LEFT JOIN conversations c ON c.id = s.root_id WHERE s.id = ?
{or_added}

-- name: not_counted
-- The tallies of `budgets` do not know this usage.
DELETE FROM state_meta WHERE key = 'budget_counted_since'

-- name: keep_spending
-- Spending stays known by day, person and model, without the session.
{into_days}
SELECT '', day, person_id, model, billing_provider, task, SUM(calls), SUM(unpriced_calls),
    SUM(input_tokens), SUM(output_tokens), SUM(cache_read_tokens), SUM(cache_write_tokens), SUM(cost_usd)
FROM usage_days WHERE session_id IN {texts} AND session_id <> ''
GROUP BY day, person_id, model, billing_provider, task
{or_added}

-- name: by_model
INSERT INTO session_model_usage AS u (
    session_id, model, billing_provider, billing_base_url, billing_mode, task,
    input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, api_call_count,
    estimated_cost_usd, actual_cost_usd, cost_status, cost_source, first_seen, last_seen
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (session_id, model, billing_provider, billing_base_url, billing_mode, task) DO UPDATE SET
    input_tokens = u.input_tokens + excluded.input_tokens,
    output_tokens = u.output_tokens + excluded.output_tokens,
    cache_read_tokens = u.cache_read_tokens + excluded.cache_read_tokens,
    cache_write_tokens = u.cache_write_tokens + excluded.cache_write_tokens,
    reasoning_tokens = u.reasoning_tokens + excluded.reasoning_tokens,
    api_call_count = u.api_call_count + excluded.api_call_count,
    estimated_cost_usd = u.estimated_cost_usd + excluded.estimated_cost_usd,
    actual_cost_usd = u.actual_cost_usd + excluded.actual_cost_usd,
    cost_status = COALESCE(excluded.cost_status, u.cost_status),
    cost_source = COALESCE(excluded.cost_source, u.cost_source),
    last_seen = {greatest}(u.last_seen, excluded.last_seen)

-- Usage for reports. Each row: day or time, person, model, provider, conversation, then the sums.

-- name: days
SELECT d.day, d.person_id, d.model, d.billing_provider, COALESCE(s.root_id, ''), SUM(d.calls), SUM(d.unpriced_calls),
    SUM(d.input_tokens), SUM(d.cache_read_tokens), SUM(d.cache_write_tokens), SUM(d.output_tokens), SUM(d.cost_usd)
FROM usage_days d LEFT JOIN sessions s ON s.id = d.session_id
WHERE d.day >= ?
GROUP BY d.day, d.person_id, d.model, d.billing_provider, COALESCE(s.root_id, '')

-- name: undated
-- Usage that the days do not contain: from before days were kept, or imported. It counts at its last call.
WITH u AS (
    SELECT session_id, model, billing_provider, SUM(api_call_count) AS calls,
        SUM(CASE WHEN estimated_cost_usd = 0 AND actual_cost_usd = 0 AND COALESCE(cost_status, 'unknown') = 'unknown'
            THEN api_call_count ELSE 0 END) AS unpriced,
        SUM(input_tokens) AS fed, SUM(cache_read_tokens) AS cache_read, SUM(cache_write_tokens) AS cache_write,
        SUM(output_tokens) AS answered,
        SUM(CASE WHEN actual_cost_usd > 0 THEN actual_cost_usd ELSE estimated_cost_usd END) AS cost,
        MAX(last_seen) AS last_seen
    FROM session_model_usage GROUP BY session_id, model, billing_provider
), d AS (
    SELECT session_id, model, billing_provider, SUM(calls) AS calls, SUM(unpriced_calls) AS unpriced,
        SUM(input_tokens) AS fed, SUM(cache_read_tokens) AS cache_read, SUM(cache_write_tokens) AS cache_write,
        SUM(output_tokens) AS answered, SUM(cost_usd) AS cost
    FROM usage_days WHERE session_id <> '' GROUP BY session_id, model, billing_provider
)
SELECT COALESCE(u.last_seen, s.last_active), COALESCE(c.owner_id, ''), u.model, u.billing_provider, s.root_id,
    u.calls - COALESCE(d.calls, 0), u.unpriced - COALESCE(d.unpriced, 0), u.fed - COALESCE(d.fed, 0),
    u.cache_read - COALESCE(d.cache_read, 0), u.cache_write - COALESCE(d.cache_write, 0),
    u.answered - COALESCE(d.answered, 0), u.cost - COALESCE(d.cost, 0)
FROM u JOIN sessions s ON s.id = u.session_id LEFT JOIN conversations c ON c.id = s.root_id
    LEFT JOIN d ON d.session_id = u.session_id AND d.model = u.model AND d.billing_provider = u.billing_provider
WHERE u.calls > COALESCE(d.calls, 0) OR u.fed + u.answered > COALESCE(d.fed + d.answered, 0)

-- name: people
SELECT id, display_name, role, zone FROM people WHERE id IN {texts}

-- name: titles
SELECT s.root_id, s.title, s.preview FROM sessions s WHERE s.root_id IN {texts} AND s.listed = 1
