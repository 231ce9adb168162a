-- What people see in the list of their sessions: the program's own description of itself and its address, both as of the last time at
-- which the session was seen, by its login or a refresh. NULL in `last_seen_at`: not since its login. Sessions from before these
-- columns have no address.
ALTER TABLE sessions ADD COLUMN kind TEXT NOT NULL DEFAULT 'api' CHECK (kind IN ('api', 'browser'));
ALTER TABLE sessions ADD COLUMN last_seen_at INTEGER;
ALTER TABLE sessions ADD COLUMN address TEXT;
ALTER TABLE sessions ADD COLUMN user_agent TEXT;

-- A new e-mail address that waits for its confirmation by a mailed link; at most one a person, the latest. `session_id` asked for it.
-- NULL in `token_hash`: the mail has not been sent.
CREATE TABLE email_changes (
    user_id TEXT NOT NULL PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    session_id TEXT NOT NULL,
    email TEXT NOT NULL,
    email_folded TEXT NOT NULL,
    token_hash BLOB,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX email_changes_token_hash ON email_changes (token_hash);
CREATE INDEX email_changes_expires_at ON email_changes (expires_at);

-- Three more mails. Their names are no longer listed here: the program knows them, and the next mail needs no step.
CREATE TABLE outbox_of_any_mail (
    id TEXT NOT NULL PRIMARY KEY,
    template TEXT NOT NULL,
    email TEXT NOT NULL,
    details TEXT NOT NULL DEFAULT '{}',
    created_at INTEGER NOT NULL,
    next_attempt_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    priority INTEGER NOT NULL DEFAULT 1
) STRICT;
INSERT INTO outbox_of_any_mail (id, template, email, details, created_at, next_attempt_at, attempts, priority)
    SELECT id, template, email, details, created_at, next_attempt_at, attempts, priority FROM outbox;
DROP TABLE outbox;
ALTER TABLE outbox_of_any_mail RENAME TO outbox;
CREATE INDEX outbox_due ON outbox (priority, next_attempt_at, id);
