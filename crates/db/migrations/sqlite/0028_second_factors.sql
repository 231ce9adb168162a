-- When the person of a session proved last who they are: a change of second factors needs a recent proof. NULL: at its login, as for
-- sessions from before this column.
ALTER TABLE sessions ADD COLUMN authenticated_at INTEGER;

-- The one-time codes of a person (RFC 6238). `sealed_seed`: 20 bytes, sealed under the master key for this person. `last_step`: the time
-- step of the last code that was used; neither it nor an older one is good again.
CREATE TABLE totp (
    user_id TEXT NOT NULL PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    sealed_seed BLOB NOT NULL,
    confirmed_at INTEGER NOT NULL,
    last_step INTEGER NOT NULL
) STRICT;

-- A seed that waits for its first code; at most one a person, the latest. It is sealed as above.
CREATE TABLE totp_enrolments (
    user_id TEXT NOT NULL PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    sealed_seed BLOB NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX totp_enrolments_expires_at ON totp_enrolments (expires_at);

-- What opens an account in place of a code, once each. Only the SHA-256 of a code's 120 random bits is stored.
CREATE TABLE recovery_codes (
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    code_hash BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    used_at INTEGER,
    PRIMARY KEY (user_id, code_hash)
) STRICT;
