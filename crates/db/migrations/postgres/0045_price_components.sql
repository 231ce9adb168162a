-- Prices of other components than prompt, cached prompt and completion, in pico: `cache_write_5m:3750000 search:10000000000`.
ALTER TABLE price_versions ADD COLUMN components TEXT;

-- Prices that hold only under conditions, which servers of earlier versions must not take for others: `tier:flex above:200000
-- hours:0-360`, hours in minutes of the week from Monday on. `version` is the number by which usage refers to a price. Revisions
-- are as those of `price_versions`.
CREATE TABLE conditional_prices (
    model TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL CHECK (version < 0),
    revision BIGINT NOT NULL,
    effective_at BIGINT NOT NULL,
    conditions TEXT NOT NULL,
    prompt_pico BIGINT CHECK (prompt_pico >= 0),
    cached_prompt_pico BIGINT CHECK (cached_prompt_pico >= 0),
    completion_pico BIGINT CHECK (completion_pico >= 0),
    components TEXT,
    recorded_at BIGINT NOT NULL,
    PRIMARY KEY (model, version, revision)
);
CREATE TRIGGER conditional_prices_append_only BEFORE UPDATE OR DELETE ON conditional_prices
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER conditional_prices_no_truncate BEFORE TRUNCATE ON conditional_prices
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- What an event counts beside its tokens: `reasoning:30 search:2`. NULL: nothing.
ALTER TABLE usage_events ADD COLUMN parts TEXT;

-- The sums of that for each daily row that has some.
CREATE TABLE usage_daily_parts (
    organization_id TEXT COLLATE "C" NOT NULL,
    project_id TEXT COLLATE "C" NOT NULL,
    day BIGINT NOT NULL,
    api_key_id TEXT COLLATE "C" NOT NULL,
    model TEXT COLLATE "C" NOT NULL,
    price_version BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    month BIGINT NOT NULL,
    component TEXT COLLATE "C" NOT NULL,
    quantity BIGINT NOT NULL,
    PRIMARY KEY (organization_id, project_id, day, api_key_id, model, price_version, kind, month, component)
);
CREATE INDEX usage_daily_parts_month ON usage_daily_parts (organization_id, month, day);

-- The same for what credit notes took back.
ALTER TABLE credited_usage ADD COLUMN parts TEXT;
