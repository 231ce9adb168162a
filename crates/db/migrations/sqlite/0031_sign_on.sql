-- People who sign in with a provider only have no password.
ALTER TABLE users ALTER COLUMN password_hash DROP NOT NULL;

-- The connections of accounts with providers. Issuer and subject say who somebody is there; `email` is the address that the provider
-- named last, for its owner to see.
CREATE TABLE connections (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    provider_id TEXT NOT NULL,
    issuer TEXT NOT NULL,
    subject TEXT NOT NULL,
    email TEXT,
    connected_at INTEGER NOT NULL,
    last_used_at INTEGER
) STRICT;
CREATE UNIQUE INDEX connections_issuer_subject ON connections (issuer, subject);
CREATE INDEX connections_user_id ON connections (user_id);

-- The connection that opened a session; NULL: a password did.
ALTER TABLE sessions ADD COLUMN connection_id TEXT;
CREATE INDEX sessions_connection_id ON sessions (connection_id) WHERE connection_id IS NOT NULL AND ended_at IS NULL;

-- What is good once: the SHA-256 of the state of a sign-on, or of the id of a token that ends sessions.
CREATE TABLE used_sign_on_values (
    value_hash BLOB NOT NULL PRIMARY KEY,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX used_sign_on_values_expires_at ON used_sign_on_values (expires_at);

-- The provider whose sign-ons made a membership, and change it; NULL: people did.
ALTER TABLE organization_members ADD COLUMN managed_by TEXT;
