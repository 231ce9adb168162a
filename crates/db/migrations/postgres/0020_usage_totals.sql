-- How often a server that keeps `usage_totals` (below) has added to the row. This comes first: the lock on the table lasts until
-- the end of this transaction, so that no usage is written between the sums and the triggers.
ALTER TABLE usage_daily ADD COLUMN additions BIGINT NOT NULL DEFAULT 0;

-- The total usage of each project and API key (`subject_id`), deleted ones included: always the sum of their daily rows. Only who
-- holds the lock of the organization's wallet writes these rows.
CREATE TABLE usage_totals (
    organization_id TEXT COLLATE "C" NOT NULL,
    subject_id TEXT COLLATE "C" NOT NULL,
    requests BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    PRIMARY KEY (organization_id, subject_id)
);
INSERT INTO usage_totals (organization_id, subject_id, requests, tokens)
    SELECT organization_id, project_id, SUM(requests), SUM(prompt_tokens) + SUM(completion_tokens)
    FROM usage_daily GROUP BY organization_id, project_id
    UNION ALL
    SELECT organization_id, api_key_id, SUM(requests), SUM(prompt_tokens) + SUM(completion_tokens)
    FROM usage_daily WHERE substr(api_key_id, 1, 5) <> 'user_' GROUP BY organization_id, api_key_id;

-- A server of an earlier version adds to daily rows without counting `additions`, and these triggers keep the totals for it: at its
-- commit, when it holds the wallet's lock. A later version removes them and the column.
CREATE FUNCTION add_to_usage_totals() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO usage_totals (organization_id, subject_id, requests, tokens)
        SELECT NEW.organization_id, subject.id, NEW.requests - COALESCE(OLD.requests, 0),
               NEW.prompt_tokens - COALESCE(OLD.prompt_tokens, 0)
                   + NEW.completion_tokens - COALESCE(OLD.completion_tokens, 0)
        FROM (VALUES (NEW.project_id), (NEW.api_key_id)) AS subject (id) WHERE substr(subject.id, 1, 5) <> 'user_'
        ON CONFLICT (organization_id, subject_id) DO UPDATE
        SET requests = usage_totals.requests + excluded.requests, tokens = usage_totals.tokens + excluded.tokens;
    RETURN NULL;
END;
$$;
CREATE CONSTRAINT TRIGGER usage_daily_insert_total AFTER INSERT ON usage_daily DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.additions = 0) EXECUTE FUNCTION add_to_usage_totals();
CREATE CONSTRAINT TRIGGER usage_daily_update_total AFTER UPDATE ON usage_daily DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.additions = OLD.additions) EXECUTE FUNCTION add_to_usage_totals();
