-- What was used, for people who ask. Each row: day or moment, person, model, provider, conversation, then the sums.

-- name: days
SELECT d.day, d.person_id, d.model, d.billing_provider, COALESCE(s.root_id, ''), SUM(d.calls), SUM(d.unpriced_calls),
    SUM(d.input_tokens), SUM(d.cache_read_tokens), SUM(d.cache_write_tokens), SUM(d.output_tokens), SUM(d.cost_usd)
FROM usage_days d LEFT JOIN sessions s ON s.id = d.session_id
WHERE d.day >= ?
GROUP BY d.day, d.person_id, d.model, d.billing_provider, COALESCE(s.root_id, '')

-- name: undated
-- What the days do not know: used before days were kept, or brought along by an import. It counts at its last call.
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
