-- How authenticators know a person: 32 random bytes, of which nothing else can be learnt. `asked_after_password`: 1 if the passkeys make a
-- second factor due after the password.
CREATE TABLE passkey_handles (
    user_id TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    handle BYTEA NOT NULL,
    asked_after_password BIGINT NOT NULL
);
CREATE UNIQUE INDEX passkey_handles_handle ON passkey_handles (handle);

-- A passkey of a person (WebAuthn). Nothing here is secret. `credential`: what signatures are checked with, above all the public key, as JSON
-- of the library. `sign_count`: the highest that the authenticator has told. `is_synced`: 1 if it was last said to be backed up.
CREATE TABLE passkeys (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    credential_id BYTEA NOT NULL,
    credential TEXT NOT NULL,
    name TEXT NOT NULL,
    sign_count BIGINT NOT NULL,
    is_synced BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    last_used_at BIGINT
);
CREATE UNIQUE INDEX passkeys_credential_id ON passkeys (credential_id);
CREATE INDEX passkeys_user_id ON passkeys (user_id);

-- Ceremonies that have succeeded, until they would have expired: each is good once.
CREATE TABLE used_ceremonies (
    ceremony_hash BYTEA NOT NULL PRIMARY KEY,
    expires_at BIGINT NOT NULL
);
CREATE INDEX used_ceremonies_expires_at ON used_ceremonies (expires_at);
