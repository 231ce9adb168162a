-- What people see in the list of their sessions: the program's own description of itself and its address, both as of the last time at
-- which the session was seen, by its login or a refresh. NULL in `last_seen_at`: not since its login. Sessions from before these
-- columns have no address.
ALTER TABLE sessions ADD COLUMN kind TEXT COLLATE "C" NOT NULL DEFAULT 'api' CHECK (kind IN ('api', 'browser'));
ALTER TABLE sessions ADD COLUMN last_seen_at BIGINT;
ALTER TABLE sessions ADD COLUMN address TEXT;
ALTER TABLE sessions ADD COLUMN user_agent TEXT;

-- A new e-mail address that waits for its confirmation by a mailed link; at most one a person, the latest. `session_id` asked for it.
-- NULL in `token_hash`: the mail has not been sent.
CREATE TABLE email_changes (
    user_id TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    session_id TEXT COLLATE "C" NOT NULL,
    email TEXT COLLATE "C" NOT NULL,
    email_folded TEXT COLLATE "C" NOT NULL,
    token_hash BYTEA,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX email_changes_token_hash ON email_changes (token_hash);
CREATE INDEX email_changes_expires_at ON email_changes (expires_at);

-- Three more mails. Their names are no longer listed here: the program knows them, and the next mail needs no step.
ALTER TABLE outbox DROP CONSTRAINT IF EXISTS outbox_template_check;
