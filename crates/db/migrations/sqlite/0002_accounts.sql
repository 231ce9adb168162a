-- Accounts that hold: mail on its way, throttling, and who did what.

-- Mail that has not left yet. What it says is made when it leaves, so that no token ever lies here in the clear.
CREATE TABLE outbox (
    id TEXT NOT NULL PRIMARY KEY,
    template TEXT NOT NULL CHECK (template IN ('verify_email', 'reset_password', 'password_changed')),
    email TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    next_attempt_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL
) STRICT;
CREATE INDEX outbox_next_attempt_at ON outbox (next_attempt_at);

-- What somebody tried too often, by the SHA-256 of whom it was tried on: accounts that don't exist count like those that do.
CREATE TABLE throttles (
    scope TEXT NOT NULL CHECK (scope IN ('login', 'forgot_password')),
    subject_hash BLOB NOT NULL,
    attempts INTEGER NOT NULL,
    since INTEGER NOT NULL,
    blocked_until INTEGER NOT NULL,
    PRIMARY KEY (scope, subject_hash)
) STRICT;
CREATE INDEX throttles_since ON throttles (since);

-- Who did what, on what, from where and when. Append-only; holds no secrets.
CREATE TABLE audit_log (
    id TEXT NOT NULL PRIMARY KEY,
    happened_at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    organization_id TEXT NULL,
    address TEXT NULL,
    request_id TEXT NULL
) STRICT;
CREATE INDEX audit_log_organization_id_id ON audit_log (organization_id, id);
CREATE INDEX audit_log_actor_id ON audit_log (actor, id);
CREATE INDEX audit_log_target_id ON audit_log (target, id);
CREATE TRIGGER audit_log_no_update BEFORE UPDATE ON audit_log
BEGIN
    SELECT RAISE(ABORT, 'audit_log is append-only');
END;
CREATE TRIGGER audit_log_no_delete BEFORE DELETE ON audit_log
BEGIN
    SELECT RAISE(ABORT, 'audit_log is append-only');
END;
