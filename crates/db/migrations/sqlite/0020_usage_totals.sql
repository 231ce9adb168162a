-- How often a server that keeps `usage_totals` (below) has added to the row.
ALTER TABLE usage_daily ADD COLUMN additions INTEGER NOT NULL DEFAULT 0;

-- The total usage of each project and API key (`subject_id`), deleted ones included: always the sum of their daily rows. Only who
-- holds the lock of the organization's wallet writes these rows.
CREATE TABLE usage_totals (
    organization_id TEXT NOT NULL,
    subject_id TEXT NOT NULL,
    requests INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    PRIMARY KEY (organization_id, subject_id)
) STRICT, WITHOUT ROWID;
INSERT INTO usage_totals (organization_id, subject_id, requests, tokens)
    SELECT organization_id, project_id, SUM(requests), SUM(prompt_tokens) + SUM(completion_tokens)
    FROM usage_daily GROUP BY organization_id, project_id
    UNION ALL
    SELECT organization_id, api_key_id, SUM(requests), SUM(prompt_tokens) + SUM(completion_tokens)
    FROM usage_daily WHERE substr(api_key_id, 1, 5) <> 'user_' GROUP BY organization_id, api_key_id;

-- A server of an earlier version adds to daily rows without counting `additions`, and these triggers keep the totals for it. A
-- later version removes them and the column.
CREATE TRIGGER usage_daily_insert_total AFTER INSERT ON usage_daily WHEN NEW.additions = 0
BEGIN
    INSERT INTO usage_totals (organization_id, subject_id, requests, tokens)
        SELECT NEW.organization_id, subject.id, NEW.requests, NEW.prompt_tokens + NEW.completion_tokens
        FROM (SELECT NEW.project_id AS id UNION ALL SELECT NEW.api_key_id) subject
        WHERE substr(subject.id, 1, 5) <> 'user_'
        ON CONFLICT (organization_id, subject_id) DO UPDATE
        SET requests = usage_totals.requests + excluded.requests, tokens = usage_totals.tokens + excluded.tokens;
END;
CREATE TRIGGER usage_daily_update_total AFTER UPDATE ON usage_daily WHEN NEW.additions = OLD.additions
BEGIN
    UPDATE usage_totals SET requests = requests + NEW.requests - OLD.requests,
        tokens = tokens + NEW.prompt_tokens - OLD.prompt_tokens + NEW.completion_tokens - OLD.completion_tokens
        WHERE organization_id = NEW.organization_id AND subject_id IN (NEW.project_id, NEW.api_key_id);
END;
