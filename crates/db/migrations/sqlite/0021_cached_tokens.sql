-- The part of the prompt's tokens that came from the upstream's cache, and their price. NULL: the event doesn't say how many, which is
-- rated as none; the price is that of other prompt tokens.
ALTER TABLE price_versions ADD COLUMN cached_prompt_pico INTEGER CHECK (cached_prompt_pico >= 0);
ALTER TABLE usage_events ADD COLUMN cached_prompt_tokens INTEGER;
ALTER TABLE usage_daily ADD COLUMN cached_prompt_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE credited_usage ADD COLUMN cached_prompt_tokens INTEGER NOT NULL DEFAULT 0;

-- 1: the counts of the event are estimates.
ALTER TABLE usage_events ADD COLUMN estimated INTEGER NOT NULL DEFAULT 0;
