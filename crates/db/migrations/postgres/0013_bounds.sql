-- Mails put into the outbox within an hour, counted by who caused them, from where, and whom they are for. Subjects are SHA-256
-- hashes, so that addresses without an account count like those that have one.
CREATE TABLE mail_counters (
    scope TEXT COLLATE "C" NOT NULL,
    subject_hash BYTEA NOT NULL,
    mails BIGINT NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (scope, subject_hash)
);
CREATE INDEX mail_counters_since ON mail_counters (since);

-- Links that people wait for leave first: 0 before 1.
ALTER TABLE outbox ADD COLUMN priority BIGINT NOT NULL DEFAULT 1;
UPDATE outbox SET priority = 0 WHERE template IN ('verify_email', 'reset_password');
CREATE INDEX outbox_due ON outbox (priority, next_attempt_at, id);
DROP INDEX outbox_next_attempt_at;

-- Open invitations are counted before another one is made.
CREATE INDEX invitations_open_until ON invitations (organization_id, expires_at) WHERE ended_at IS NULL;

-- When a person's first organization got its credit limit: once for ever. Organizations from before keep theirs.
ALTER TABLE users ADD COLUMN credit_granted_at BIGINT;
UPDATE users SET credit_granted_at =
    (SELECT MIN(o.created_at) FROM organizations o WHERE o.created_by = users.id)
    WHERE id IN (SELECT created_by FROM organizations);
