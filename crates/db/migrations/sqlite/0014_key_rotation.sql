-- The person who made a secret of a key by rotating it, where that isn't the key's maker: the secret acts with the lower roles
-- of both. Secrets from before this column were made by somebody unknown, and act with the maker's roles as they did.
ALTER TABLE api_key_secrets ADD COLUMN rotated_by TEXT REFERENCES users (id);
CREATE INDEX api_key_secrets_rotated_by ON api_key_secrets (rotated_by) WHERE rotated_by IS NOT NULL;
