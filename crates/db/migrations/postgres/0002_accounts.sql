-- Accounts that hold: mail on its way, throttling, and who did what.

-- Mail that has not left yet. What it says is made when it leaves, so that no token ever lies here in the clear.
CREATE TABLE outbox (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    template TEXT COLLATE "C" NOT NULL CHECK (template IN ('verify_email', 'reset_password', 'password_changed')),
    email TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    next_attempt_at BIGINT NOT NULL,
    attempts BIGINT NOT NULL
);
CREATE INDEX outbox_next_attempt_at ON outbox (next_attempt_at);

-- What somebody tried too often, by the SHA-256 of whom it was tried on: accounts that don't exist count like those that do.
CREATE TABLE throttles (
    scope TEXT COLLATE "C" NOT NULL CHECK (scope IN ('login', 'forgot_password')),
    subject_hash BYTEA NOT NULL,
    attempts BIGINT NOT NULL,
    since BIGINT NOT NULL,
    blocked_until BIGINT NOT NULL,
    PRIMARY KEY (scope, subject_hash)
);
CREATE INDEX throttles_since ON throttles (since);

-- Who did what, on what, from where and when. Append-only; holds no secrets.
CREATE TABLE audit_log (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    happened_at BIGINT NOT NULL,
    actor TEXT COLLATE "C" NOT NULL,
    action TEXT COLLATE "C" NOT NULL,
    target TEXT COLLATE "C" NOT NULL,
    organization_id TEXT COLLATE "C" NULL,
    address TEXT NULL,
    request_id TEXT COLLATE "C" NULL
);
CREATE INDEX audit_log_organization_id_id ON audit_log (organization_id, id);
CREATE INDEX audit_log_actor_id ON audit_log (actor, id);
CREATE INDEX audit_log_target_id ON audit_log (target, id);
CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER audit_log_no_truncate BEFORE TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
