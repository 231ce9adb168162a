-- What calls of the gateway cost the operator, by the day of their admission. Only calls by routes that have a cost are here, whole: with
-- their tokens and their list price. Amounts are *_whole plus *_pico. Only who holds the lock of the organization's wallet writes these rows.
CREATE TABLE daily_costs (
    day BIGINT NOT NULL,
    organization_id TEXT COLLATE "C" NOT NULL,
    model TEXT COLLATE "C" NOT NULL,
    upstream TEXT COLLATE "C" NOT NULL,
    requests BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    amount_whole BIGINT NOT NULL,
    amount_pico BIGINT NOT NULL,
    cost_whole BIGINT NOT NULL,
    cost_pico BIGINT NOT NULL,
    PRIMARY KEY (day, organization_id, model, upstream)
);
