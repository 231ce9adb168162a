-- What calls of the gateway cost the operator, by the day of their admission. Only calls by routes that have a cost are here, whole: with
-- their tokens and their list price. Amounts are *_whole plus *_pico. Only who holds the lock of the organization's wallet writes these rows.
CREATE TABLE daily_costs (
    day INTEGER NOT NULL,
    organization_id TEXT NOT NULL,
    model TEXT NOT NULL,
    upstream TEXT NOT NULL,
    requests INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    amount_whole INTEGER NOT NULL,
    amount_pico INTEGER NOT NULL,
    cost_whole INTEGER NOT NULL,
    cost_pico INTEGER NOT NULL,
    PRIMARY KEY (day, organization_id, model, upstream)
) STRICT, WITHOUT ROWID;
