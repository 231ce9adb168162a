-- How far the gateway's call of a reservation had come when the gateway last wrote it: the tokens until then, and 1 in `estimated` if
-- some of them are estimates. NULL in `prompt_tokens` and `completion_tokens`: nothing was written. When such a reservation expires,
-- these tokens are charged.
ALTER TABLE reservations ADD COLUMN prompt_tokens BIGINT;
ALTER TABLE reservations ADD COLUMN cached_prompt_tokens BIGINT;
ALTER TABLE reservations ADD COLUMN completion_tokens BIGINT;
ALTER TABLE reservations ADD COLUMN estimated BIGINT NOT NULL DEFAULT 0;

-- 1: it has expired, is about to be captured, and can't be extended any more.
ALTER TABLE reservations ADD COLUMN closed BIGINT NOT NULL DEFAULT 0;
