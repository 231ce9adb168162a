-- The keys of an organization that expire soon, and the previous secrets that still work.
CREATE INDEX api_keys_organization_id_expires_at ON api_keys (organization_id, expires_at)
    WHERE expires_at IS NOT NULL;
CREATE INDEX api_key_secrets_ends_at ON api_key_secrets (ends_at) WHERE ends_at IS NOT NULL;
