-- The webhooks of organizations: addresses that get events. `event_types` is a JSON array of words. The secrets are sealed for the
-- id; the previous one signs too until `previous_ends_at`. `failing_since` is the time of the first failed attempt since the last
-- one that succeeded.
CREATE TABLE webhooks (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    organization_id TEXT COLLATE "C" NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    url TEXT COLLATE "C" NOT NULL,
    description TEXT COLLATE "C",
    event_types TEXT COLLATE "C" NOT NULL,
    sealed_secret BYTEA NOT NULL,
    previous_sealed_secret BYTEA,
    previous_ends_at BIGINT,
    is_enabled BIGINT NOT NULL CHECK (is_enabled IN (0, 1)),
    disabled_reason TEXT COLLATE "C" CHECK (disabled_reason IN ('owner', 'gone', 'failing')),
    failing_since BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX webhooks_organization_id_id ON webhooks (organization_id, id);

-- Events that at least one webhook takes, with the bytes that are signed and sent. No key refers to an organization: an event is written
-- in transactions that hold the lock of a wallet, and must not wait for that of an organization.
CREATE TABLE webhook_events (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    organization_id TEXT COLLATE "C" NOT NULL,
    event_type TEXT COLLATE "C" NOT NULL,
    body BYTEA NOT NULL,
    created_at BIGINT NOT NULL
);

-- The deliveries of events to webhooks. One that is being sent is leased: `next_attempt_at` is the end of the lease. `attempts` counts
-- all attempts, `round_attempts` those since the delivery was last begun. Of an answer only its status is kept.
CREATE TABLE webhook_deliveries (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    webhook_id TEXT COLLATE "C" NOT NULL,
    event_id TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL CHECK (state IN ('pending', 'succeeded', 'failed')),
    is_leased BIGINT NOT NULL DEFAULT 0 CHECK (is_leased IN (0, 1)),
    attempts BIGINT NOT NULL DEFAULT 0,
    round_attempts BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    next_attempt_at BIGINT NOT NULL,
    last_attempt_at BIGINT,
    last_outcome TEXT COLLATE "C",
    last_status BIGINT,
    last_duration_ms BIGINT
);
CREATE INDEX webhook_deliveries_pending ON webhook_deliveries (webhook_id, next_attempt_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_leased ON webhook_deliveries (webhook_id, next_attempt_at) WHERE is_leased = 1;
CREATE INDEX webhook_deliveries_webhook_id_id ON webhook_deliveries (webhook_id, id);
CREATE INDEX webhook_deliveries_webhook_id_state_id ON webhook_deliveries (webhook_id, state, id);
