-- A webhook without an organization is the installation's: it gets the events of all organizations, and the operator's own. Of these
-- `webhook_events.organization_id` is empty.
ALTER TABLE webhooks ALTER COLUMN organization_id DROP NOT NULL;

-- One row: its lock is that of what belongs to the installation and to no organization.
CREATE TABLE installation (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1)
);
INSERT INTO installation (id) VALUES (1);

-- What the installation's webhooks were told of, so that they are told once: for `audit.drift` a drift while it lasts, for
-- `catalog.refused` the mistakes of a file until it is taken, for `usage.refused` a code and a source for an hour. `subject` is a digest.
CREATE TABLE operator_announcements (
    event_type TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C" NOT NULL,
    announced_at BIGINT NOT NULL,
    PRIMARY KEY (event_type, subject)
);
