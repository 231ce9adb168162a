-- Prices of other components than prompt, cached prompt and completion, in pico: `cache_write_5m:3750000 search:10000000000`.
ALTER TABLE price_versions ADD COLUMN components TEXT;

-- Prices that hold only under conditions, which servers of earlier versions must not take for others: `tier:flex above:200000
-- hours:0-360`, hours in minutes of the week from Monday on. `version` is the number by which usage refers to a price. Revisions
-- are as those of `price_versions`.
CREATE TABLE conditional_prices (
    model TEXT NOT NULL,
    version INTEGER NOT NULL CHECK (version < 0),
    revision INTEGER NOT NULL,
    effective_at INTEGER NOT NULL,
    conditions TEXT NOT NULL,
    prompt_pico INTEGER CHECK (prompt_pico >= 0),
    cached_prompt_pico INTEGER CHECK (cached_prompt_pico >= 0),
    completion_pico INTEGER CHECK (completion_pico >= 0),
    components TEXT,
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (model, version, revision)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER conditional_prices_no_update BEFORE UPDATE ON conditional_prices
BEGIN
    SELECT RAISE(ABORT, 'conditional_prices is append-only');
END;
CREATE TRIGGER conditional_prices_no_delete BEFORE DELETE ON conditional_prices
BEGIN
    SELECT RAISE(ABORT, 'conditional_prices is append-only');
END;

-- What an event counts beside its tokens: `reasoning:30 search:2`. NULL: nothing.
ALTER TABLE usage_events ADD COLUMN parts TEXT;

-- The sums of that for each daily row that has some.
CREATE TABLE usage_daily_parts (
    organization_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    day INTEGER NOT NULL,
    api_key_id TEXT NOT NULL,
    model TEXT NOT NULL,
    price_version INTEGER NOT NULL,
    kind TEXT NOT NULL,
    month INTEGER NOT NULL,
    component TEXT NOT NULL,
    quantity INTEGER NOT NULL,
    PRIMARY KEY (organization_id, project_id, day, api_key_id, model, price_version, kind, month, component)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_daily_parts_month ON usage_daily_parts (organization_id, month, day);

-- The same for what credit notes took back.
ALTER TABLE credited_usage ADD COLUMN parts TEXT;
