-- When webhooks were told that a credit or an API key expires within a week; NULL: not yet.
ALTER TABLE credits ADD COLUMN expiry_announced_at INTEGER;
CREATE INDEX credits_expiry_not_announced ON credits (expires_at, id)
    WHERE expiry_announced_at IS NULL AND remaining_nano > 0;
ALTER TABLE api_keys ADD COLUMN expiry_announced_at INTEGER;
CREATE INDEX api_keys_expiry_not_announced ON api_keys (expires_at, id)
    WHERE expires_at IS NOT NULL AND expiry_announced_at IS NULL;
