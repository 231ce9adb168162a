-- The webhooks of organizations: addresses that get events. `event_types` is a JSON array of words. The secrets are sealed for the
-- id; the previous one signs too until `previous_ends_at`. `failing_since` is the time of the first failed attempt since the last
-- one that succeeded.
CREATE TABLE webhooks (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
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
CREATE INDEX webhooks_organization_id_id ON webhooks (organization_id, id);

-- Events that at least one webhook takes, with the bytes that are signed and sent. No key refers to an organization: an event is written
-- in transactions that hold the lock of a wallet, and must not wait for that of an organization.
CREATE TABLE webhook_events (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    body BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- The deliveries of events to webhooks. One that is being sent is leased: `next_attempt_at` is the end of the lease. `attempts` counts
-- all attempts, `round_attempts` those since the delivery was last begun. Of an answer only its status is kept.
CREATE TABLE webhook_deliveries (
    id TEXT NOT NULL PRIMARY KEY,
    webhook_id TEXT NOT NULL,
    event_id TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'succeeded', 'failed')),
    is_leased INTEGER NOT NULL DEFAULT 0 CHECK (is_leased IN (0, 1)),
    attempts INTEGER NOT NULL DEFAULT 0,
    round_attempts INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    next_attempt_at INTEGER NOT NULL,
    last_attempt_at INTEGER,
    last_outcome TEXT,
    last_status INTEGER,
    last_duration_ms INTEGER
) STRICT;
CREATE INDEX webhook_deliveries_pending ON webhook_deliveries (webhook_id, next_attempt_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_leased ON webhook_deliveries (webhook_id, next_attempt_at) WHERE is_leased = 1;
CREATE INDEX webhook_deliveries_webhook_id_id ON webhook_deliveries (webhook_id, id);
CREATE INDEX webhook_deliveries_webhook_id_state_id ON webhook_deliveries (webhook_id, state, id);
