-- A webhook without an organization is the installation's: it gets the events of all organizations, and the operator's own. Of these
-- `webhook_events.organization_id` is empty.
CREATE TABLE webhooks_of_any_owner (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT REFERENCES organizations (id) ON DELETE CASCADE,
    url TEXT NOT NULL,
    description TEXT,
    event_types TEXT NOT NULL,
    sealed_secret BLOB NOT NULL,
    previous_sealed_secret BLOB,
    previous_ends_at INTEGER,
    is_enabled INTEGER NOT NULL CHECK (is_enabled IN (0, 1)),
    disabled_reason TEXT CHECK (disabled_reason IN ('owner', 'gone', 'failing')),
    failing_since INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
INSERT INTO webhooks_of_any_owner (id, organization_id, url, description, event_types, sealed_secret, previous_sealed_secret,
        previous_ends_at, is_enabled, disabled_reason, failing_since, created_at, updated_at)
    SELECT id, organization_id, url, description, event_types, sealed_secret, previous_sealed_secret,
        previous_ends_at, is_enabled, disabled_reason, failing_since, created_at, updated_at FROM webhooks;
DROP TABLE webhooks;
ALTER TABLE webhooks_of_any_owner RENAME TO webhooks;
CREATE INDEX webhooks_organization_id_id ON webhooks (organization_id, id);

-- One row: its lock is that of what belongs to the installation and to no organization.
CREATE TABLE installation (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1)
) STRICT;
INSERT INTO installation (id) VALUES (1);

-- What the installation's webhooks were told of, so that they are told once: for `audit.drift` a drift while it lasts, for
-- `catalog.refused` the mistakes of a file until it is taken, for `usage.refused` a code and a source for an hour. `subject` is a digest.
CREATE TABLE operator_announcements (
    event_type TEXT NOT NULL,
    subject TEXT NOT NULL,
    announced_at INTEGER NOT NULL,
    PRIMARY KEY (event_type, subject)
) STRICT;
