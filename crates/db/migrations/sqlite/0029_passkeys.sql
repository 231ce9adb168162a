-- How authenticators know a person: 32 random bytes, of which nothing else can be learnt. `asked_after_password`: 1 if the passkeys make a
-- second factor due after the password.
CREATE TABLE passkey_handles (
    user_id TEXT NOT NULL PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    handle BLOB NOT NULL,
    asked_after_password INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX passkey_handles_handle ON passkey_handles (handle);

-- A passkey of a person (WebAuthn). Nothing here is secret. `credential`: what signatures are checked with, above all the public key, as JSON
-- of the library. `sign_count`: the highest that the authenticator has told. `is_synced`: 1 if it was last said to be backed up.
CREATE TABLE passkeys (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    credential_id BLOB NOT NULL,
    credential TEXT NOT NULL,
    name TEXT NOT NULL,
    sign_count INTEGER NOT NULL,
    is_synced INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    last_used_at INTEGER
) STRICT;
CREATE UNIQUE INDEX passkeys_credential_id ON passkeys (credential_id);
CREATE INDEX passkeys_user_id ON passkeys (user_id);

-- Ceremonies that have succeeded, until they would have expired: each is good once.
CREATE TABLE used_ceremonies (
    ceremony_hash BLOB NOT NULL PRIMARY KEY,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX used_ceremonies_expires_at ON used_ceremonies (expires_at);
