-- Guesses at passwords are counted by account and client network, so that nobody's guesses make the owner wait at home.

-- Logins that were tried, by the SHA-256 of the folded address, so that addresses without an account count like those with one, and
-- by network. The row with an empty network counts all networks from which the account has no good login.
CREATE TABLE login_guesses (
    account_hash BLOB NOT NULL,
    network TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    since INTEGER NOT NULL,
    blocked_until INTEGER NOT NULL,
    PRIMARY KEY (account_hash, network)
) STRICT;
CREATE INDEX login_guesses_since ON login_guesses (since);

-- Wrong passwords within a day, by the same hash: the owner is told of the tenth.
CREATE TABLE login_failures (
    account_hash BLOB NOT NULL PRIMARY KEY,
    failures INTEGER NOT NULL,
    since INTEGER NOT NULL
) STRICT;
CREATE INDEX login_failures_since ON login_failures (since);

-- Networks of good logins of the last 30 days.
CREATE TABLE login_networks (
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    network TEXT NOT NULL,
    last_login_at INTEGER NOT NULL,
    PRIMARY KEY (user_id, network)
) STRICT;
CREATE INDEX login_networks_last_login_at ON login_networks (last_login_at);

-- What an entry says beside ids: a small JSON object, for instance why a login was refused.
ALTER TABLE audit_log ADD COLUMN detail TEXT NULL;

-- Two more mails: failed logins, and a login from a new network.
CREATE TABLE outbox_with_logins (
    id TEXT NOT NULL PRIMARY KEY,
    template TEXT NOT NULL CHECK (template IN ('verify_email', 'reset_password', 'password_changed', 'invitation', 'added_to_project', 'organization_deleted',
        'project_deleted', 'logins_refused', 'new_login')),
    email TEXT NOT NULL,
    details TEXT NOT NULL DEFAULT '{}',
    created_at INTEGER NOT NULL,
    next_attempt_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL
) STRICT;
INSERT INTO outbox_with_logins (id, template, email, details, created_at, next_attempt_at, attempts)
    SELECT id, template, email, details, created_at, next_attempt_at, attempts FROM outbox;
DROP TABLE outbox;
ALTER TABLE outbox_with_logins RENAME TO outbox;
CREATE INDEX outbox_next_attempt_at ON outbox (next_attempt_at);

-- Resets of passwords are counted with other mails; guesses from before count no more.
DROP TABLE throttles;
