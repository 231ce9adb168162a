-- Usage of a project and day by model, and by caller: always the sums of the rows of usage_daily, for reports that aren't grouped by
-- both. `grouped_by` says which of the two `group_id` is: the name of a model, or the id of a caller. The amount is amount_whole plus
-- amount_pico. Only who holds the lock of the organization's wallet writes these rows.
CREATE TABLE usage_daily_sums (
    organization_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    grouped_by TEXT NOT NULL CHECK (grouped_by IN ('model', 'caller')),
    day INTEGER NOT NULL,
    group_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    requests INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    amount_whole INTEGER NOT NULL,
    amount_pico INTEGER NOT NULL,
    PRIMARY KEY (organization_id, project_id, grouped_by, day, group_id, kind)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_daily_sums_organization_day ON usage_daily_sums (organization_id, grouped_by, day);
INSERT INTO usage_daily_sums (organization_id, project_id, grouped_by, day, group_id, kind, requests, prompt_tokens,
                              completion_tokens, amount_whole, amount_pico)
    SELECT organization_id, project_id, 'model', day, model, kind, SUM(requests), SUM(prompt_tokens), SUM(completion_tokens),
           SUM(amount_whole + amount_pico / 1000000000000), SUM(amount_pico % 1000000000000)
    FROM usage_daily GROUP BY organization_id, project_id, day, model, kind
    UNION ALL
    SELECT organization_id, project_id, 'caller', day, api_key_id, kind, SUM(requests), SUM(prompt_tokens), SUM(completion_tokens),
           SUM(amount_whole + amount_pico / 1000000000000), SUM(amount_pico % 1000000000000)
    FROM usage_daily GROUP BY organization_id, project_id, day, api_key_id, kind;

-- A server that writes these rows adds 2 to `usage_daily.additions`, one of schema 20 to 38 adds 1, and an earlier one nothing. These
-- triggers write the rows for the earlier servers. A later version removes them.
CREATE TRIGGER usage_daily_insert_sums AFTER INSERT ON usage_daily WHEN NEW.additions < 2
BEGIN
    INSERT INTO usage_daily_sums (organization_id, project_id, grouped_by, day, group_id, kind, requests, prompt_tokens,
                                  completion_tokens, amount_whole, amount_pico)
        SELECT NEW.organization_id, NEW.project_id, g.grouped_by, NEW.day, g.id, NEW.kind, NEW.requests, NEW.prompt_tokens,
               NEW.completion_tokens, NEW.amount_whole + NEW.amount_pico / 1000000000000, NEW.amount_pico % 1000000000000
        FROM (SELECT 'model' AS grouped_by, NEW.model AS id UNION ALL SELECT 'caller', NEW.api_key_id) g WHERE 1
        ON CONFLICT (organization_id, project_id, grouped_by, day, group_id, kind) DO UPDATE
        SET requests = usage_daily_sums.requests + excluded.requests,
            prompt_tokens = usage_daily_sums.prompt_tokens + excluded.prompt_tokens,
            completion_tokens = usage_daily_sums.completion_tokens + excluded.completion_tokens,
            amount_whole = usage_daily_sums.amount_whole + excluded.amount_whole,
            amount_pico = usage_daily_sums.amount_pico + excluded.amount_pico;
END;
CREATE TRIGGER usage_daily_update_sums AFTER UPDATE ON usage_daily WHEN NEW.additions < OLD.additions + 2
BEGIN
    UPDATE usage_daily_sums SET requests = requests + NEW.requests - OLD.requests,
        prompt_tokens = prompt_tokens + NEW.prompt_tokens - OLD.prompt_tokens,
        completion_tokens = completion_tokens + NEW.completion_tokens - OLD.completion_tokens,
        -- Divided before they are subtracted: the difference may have more than 64 bits.
        amount_whole = amount_whole + NEW.amount_whole - OLD.amount_whole
            + NEW.amount_pico / 1000000000000 - OLD.amount_pico / 1000000000000,
        amount_pico = amount_pico + NEW.amount_pico % 1000000000000 - OLD.amount_pico % 1000000000000
        WHERE organization_id = NEW.organization_id AND project_id = NEW.project_id AND day = NEW.day AND kind = NEW.kind
          AND (grouped_by = 'model' AND group_id = NEW.model OR grouped_by = 'caller' AND group_id = NEW.api_key_id);
END;
