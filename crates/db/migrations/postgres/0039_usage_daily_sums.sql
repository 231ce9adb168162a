-- Usage of a project and day by model, and by caller: always the sums of the rows of usage_daily, for reports that aren't grouped by
-- both. `grouped_by` says which of the two `group_id` is: the name of a model, or the id of a caller. The amount is amount_whole plus
-- amount_pico. Only who holds the lock of the organization's wallet writes these rows.
CREATE TABLE usage_daily_sums (
    organization_id TEXT COLLATE "C" NOT NULL,
    project_id TEXT COLLATE "C" NOT NULL,
    grouped_by TEXT COLLATE "C" NOT NULL CHECK (grouped_by IN ('model', 'caller')),
    day BIGINT NOT NULL,
    group_id TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    requests BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    amount_whole BIGINT NOT NULL,
    amount_pico BIGINT NOT NULL,
    PRIMARY KEY (organization_id, project_id, grouped_by, day, group_id, kind)
);
CREATE INDEX usage_daily_sums_organization_day ON usage_daily_sums (organization_id, grouped_by, day);

-- A server that writes these rows adds 2 to `usage_daily.additions`, one of schema 20 to 38 adds 1, and an earlier one nothing. These
-- triggers write the rows for the earlier servers: at their commit, when they hold the wallet's lock. A later version removes them. The
-- triggers' lock on the table lasts until the end of this transaction, so that no usage is written between them and the sums.
CREATE FUNCTION add_to_usage_daily_sums() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    whole CONSTANT BIGINT := NEW.amount_whole - COALESCE(OLD.amount_whole, 0);
    -- Divided before they are subtracted: the difference may have more than 64 bits.
    whole_of_pico CONSTANT BIGINT := NEW.amount_pico / 1000000000000 - COALESCE(OLD.amount_pico, 0) / 1000000000000;
    pico CONSTANT BIGINT := NEW.amount_pico % 1000000000000 - COALESCE(OLD.amount_pico, 0) % 1000000000000;
BEGIN
    INSERT INTO usage_daily_sums (organization_id, project_id, grouped_by, day, group_id, kind, requests, prompt_tokens,
                                  completion_tokens, amount_whole, amount_pico)
        SELECT NEW.organization_id, NEW.project_id, g.grouped_by, NEW.day, g.id, NEW.kind,
               NEW.requests - COALESCE(OLD.requests, 0), NEW.prompt_tokens - COALESCE(OLD.prompt_tokens, 0),
               NEW.completion_tokens - COALESCE(OLD.completion_tokens, 0),
               whole + whole_of_pico, pico
        FROM (VALUES ('model', NEW.model), ('caller', NEW.api_key_id)) AS g (grouped_by, id)
        ON CONFLICT (organization_id, project_id, grouped_by, day, group_id, kind) DO UPDATE
        SET requests = usage_daily_sums.requests + excluded.requests,
            prompt_tokens = usage_daily_sums.prompt_tokens + excluded.prompt_tokens,
            completion_tokens = usage_daily_sums.completion_tokens + excluded.completion_tokens,
            amount_whole = usage_daily_sums.amount_whole + excluded.amount_whole,
            amount_pico = usage_daily_sums.amount_pico + excluded.amount_pico;
    RETURN NULL;
END;
$$;
CREATE CONSTRAINT TRIGGER usage_daily_insert_sums AFTER INSERT ON usage_daily DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.additions < 2) EXECUTE FUNCTION add_to_usage_daily_sums();
CREATE CONSTRAINT TRIGGER usage_daily_update_sums AFTER UPDATE ON usage_daily DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.additions < OLD.additions + 2) EXECUTE FUNCTION add_to_usage_daily_sums();

INSERT INTO usage_daily_sums (organization_id, project_id, grouped_by, day, group_id, kind, requests, prompt_tokens,
                              completion_tokens, amount_whole, amount_pico)
    SELECT organization_id, project_id, 'model', day, model, kind, SUM(requests), SUM(prompt_tokens), SUM(completion_tokens),
           SUM(amount_whole + amount_pico / 1000000000000), SUM(amount_pico % 1000000000000)
    FROM usage_daily GROUP BY organization_id, project_id, day, model, kind
    UNION ALL
    SELECT organization_id, project_id, 'caller', day, api_key_id, kind, SUM(requests), SUM(prompt_tokens), SUM(completion_tokens),
           SUM(amount_whole + amount_pico / 1000000000000), SUM(amount_pico % 1000000000000)
    FROM usage_daily GROUP BY organization_id, project_id, day, api_key_id, kind;
