-- Since when an operator has disabled the account: nobody signs in to it, and it has no live session. NULL: it isn't disabled.
ALTER TABLE users ADD COLUMN disabled_at INTEGER;

-- Since when the person is an operator of the installation. NULL: they aren't. No operation of the API writes it.
ALTER TABLE users ADD COLUMN operator_since INTEGER;
CREATE INDEX users_operator_since ON users (operator_since) WHERE operator_since IS NOT NULL;

-- 1: only members with a second factor of their own get in; API keys aren't asked.
ALTER TABLE organizations ADD COLUMN require_second_factor INTEGER NOT NULL DEFAULT 0;

-- The SHA-256 of the token that makes the first operator's account; at most one row. It is removed with the first operator.
CREATE TABLE first_account (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    token_hash BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- Why the last attempt to send a mail failed.
ALTER TABLE outbox ADD COLUMN last_error TEXT;
