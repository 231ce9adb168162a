-- Guesses at passwords are counted by account and client network, so that nobody's guesses make the owner wait at home.

-- Logins that were tried, by the SHA-256 of the folded address, so that addresses without an account count like those with one, and
-- by network. The row with an empty network counts all networks from which the account has no good login.
CREATE TABLE login_guesses (
    account_hash BYTEA NOT NULL,
    network TEXT COLLATE "C" NOT NULL,
    attempts BIGINT NOT NULL,
    since BIGINT NOT NULL,
    blocked_until BIGINT NOT NULL,
    PRIMARY KEY (account_hash, network)
);
CREATE INDEX login_guesses_since ON login_guesses (since);

-- Wrong passwords within a day, by the same hash: the owner is told of the tenth.
CREATE TABLE login_failures (
    account_hash BYTEA NOT NULL PRIMARY KEY,
    failures BIGINT NOT NULL,
    since BIGINT NOT NULL
);
CREATE INDEX login_failures_since ON login_failures (since);

-- Networks of good logins of the last 30 days.
CREATE TABLE login_networks (
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    network TEXT COLLATE "C" NOT NULL,
    last_login_at BIGINT NOT NULL,
    PRIMARY KEY (user_id, network)
);
CREATE INDEX login_networks_last_login_at ON login_networks (last_login_at);

-- What an entry says beside ids: a small JSON object, for instance why a login was refused.
ALTER TABLE audit_log ADD COLUMN detail TEXT NULL;

-- Two more mails: failed logins, and a login from a new network.
ALTER TABLE outbox DROP CONSTRAINT outbox_template_check;
ALTER TABLE outbox ADD CONSTRAINT outbox_template_check CHECK (template IN ('verify_email', 'reset_password', 'password_changed', 'invitation', 'added_to_project', 'organization_deleted',
    'project_deleted', 'logins_refused', 'new_login'));

-- Resets of passwords are counted with other mails; guesses from before count no more.
DROP TABLE throttles;
