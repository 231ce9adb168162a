-- Payments by Stripe. Amounts are in the unit in which Stripe counts the currency (`ChargeUnit`). `processing` is a charge without the
-- customer, from its request to its end; `is_attempt_open` is 1 from before Stripe is asked until its answer is stored, and `attempts`
-- is the number of the attempt. `next_at` is when a job looks at it again. `request_key` is a digest of the caller and the idempotency
-- key of the request that made it. Only the holder of the wallet's lock writes here; no key refers to an organization, because payments
-- are older than, and outlive, their organizations, and are written under the lock of a wallet.
CREATE TABLE payments (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    organization_id TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL CHECK (kind IN ('credit', 'invoice', 'auto_top_up')),
    invoice_id TEXT COLLATE "C",
    amount_minor BIGINT NOT NULL CHECK (amount_minor > 0),
    currency TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL CHECK (status IN ('open', 'processing', 'action_required', 'succeeded', 'failed', 'canceled')),
    saves_card BIGINT NOT NULL DEFAULT 0 CHECK (saves_card IN (0, 1)),
    customer_id TEXT COLLATE "C",
    session_id TEXT COLLATE "C",
    intent_id TEXT COLLATE "C",
    method_id TEXT COLLATE "C",
    checkout_url TEXT COLLATE "C",
    attempts BIGINT NOT NULL DEFAULT 0,
    is_attempt_open BIGINT NOT NULL DEFAULT 0 CHECK (is_attempt_open IN (0, 1)),
    next_at BIGINT,
    refunded_minor BIGINT NOT NULL DEFAULT 0,
    disputed_minor BIGINT NOT NULL DEFAULT 0,
    failure_code TEXT COLLATE "C",
    caller TEXT COLLATE "C" NOT NULL,
    request_key BYTEA,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    paid_at BIGINT
);
CREATE INDEX payments_organization_id_id ON payments (organization_id, id);
CREATE UNIQUE INDEX payments_request_key ON payments (request_key) WHERE request_key IS NOT NULL;
CREATE UNIQUE INDEX payments_session_id ON payments (session_id) WHERE session_id IS NOT NULL;
CREATE UNIQUE INDEX payments_intent_id ON payments (intent_id) WHERE intent_id IS NOT NULL;
CREATE INDEX payments_next_at ON payments (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX payments_paid_at ON payments (paid_at) WHERE paid_at IS NOT NULL;
-- One auto-top-up of an organization is under way at a time.
CREATE UNIQUE INDEX payments_top_up_under_way ON payments (organization_id)
    WHERE kind = 'auto_top_up' AND status IN ('processing', 'action_required');

-- The customers at Stripe, and their saved cards. `setup_…` is the session in which a card is being saved.
CREATE TABLE payment_customers (
    organization_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    customer_id TEXT COLLATE "C" NOT NULL,
    method_id TEXT COLLATE "C",
    card_brand TEXT COLLATE "C",
    card_last4 TEXT COLLATE "C",
    card_exp_month BIGINT,
    card_exp_year BIGINT,
    setup_number BIGINT NOT NULL DEFAULT 0,
    setup_session_id TEXT COLLATE "C",
    setup_url TEXT COLLATE "C",
    setup_expires_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX payment_customers_customer_id ON payment_customers (customer_id);
CREATE UNIQUE INDEX payment_customers_method_id ON payment_customers (method_id) WHERE method_id IS NOT NULL;

-- Automatic top-ups. While one may be requested, `wallets.top_up_below_nano` has the threshold. `failures` counts the declined attempts
-- since the last charge that succeeded.
CREATE TABLE auto_top_ups (
    organization_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    is_enabled BIGINT NOT NULL CHECK (is_enabled IN (0, 1)),
    threshold_nano BIGINT NOT NULL,
    restore_to_nano BIGINT NOT NULL,
    monthly_cap_nano BIGINT,
    paused_reason TEXT COLLATE "C" CHECK (paused_reason IN ('declined', 'authentication_required', 'monthly_cap', 'no_payment_method', 'refunded',
        'disputed')),
    failures BIGINT NOT NULL DEFAULT 0,
    next_try_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX auto_top_ups_next_try_at ON auto_top_ups (next_try_at) WHERE next_try_at IS NOT NULL;
ALTER TABLE wallets ADD COLUMN top_up_below_nano BIGINT;

-- Events that Stripe has sent: only what is needed to read the object from Stripe.
CREATE TABLE stripe_events (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    event_type TEXT COLLATE "C" NOT NULL,
    object_id TEXT COLLATE "C" NOT NULL,
    received_at BIGINT NOT NULL,
    done_at BIGINT,
    attempts BIGINT NOT NULL DEFAULT 0,
    next_at BIGINT NOT NULL,
    last_error TEXT
);
CREATE INDEX stripe_events_next_at ON stripe_events (next_at) WHERE done_at IS NULL;
CREATE INDEX stripe_events_done_at ON stripe_events (done_at) WHERE done_at IS NOT NULL;

-- What Stripe is still to do: sessions to expire, cards to detach.
CREATE TABLE stripe_tasks (
    kind TEXT COLLATE "C" NOT NULL CHECK (kind IN ('expire_session', 'detach_method')),
    object_id TEXT COLLATE "C" NOT NULL,
    attempts BIGINT NOT NULL DEFAULT 0,
    next_at BIGINT NOT NULL,
    last_error TEXT,
    PRIMARY KEY (kind, object_id)
);
CREATE INDEX stripe_tasks_next_at ON stripe_tasks (next_at);

-- Refunds of payments: those that an operator has asked for, and those made at Stripe.
CREATE TABLE payment_refunds (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    payment_id TEXT COLLATE "C" NOT NULL REFERENCES payments (id),
    organization_id TEXT COLLATE "C" NOT NULL,
    amount_minor BIGINT NOT NULL CHECK (amount_minor > 0),
    status TEXT COLLATE "C" NOT NULL CHECK (status IN ('pending', 'succeeded', 'failed')),
    stripe_id TEXT COLLATE "C",
    next_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX payment_refunds_payment_id ON payment_refunds (payment_id);
CREATE INDEX payment_refunds_organization_id ON payment_refunds (organization_id);
CREATE UNIQUE INDEX payment_refunds_stripe_id ON payment_refunds (stripe_id) WHERE stripe_id IS NOT NULL;
CREATE INDEX payment_refunds_next_at ON payment_refunds (next_at) WHERE next_at IS NOT NULL;

-- Disputes of payments, by their id at Stripe. The funds are with the bank from `withdrawn_at` until `reinstated_at`.
CREATE TABLE payment_disputes (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    payment_id TEXT COLLATE "C" NOT NULL REFERENCES payments (id),
    organization_id TEXT COLLATE "C" NOT NULL,
    amount_minor BIGINT NOT NULL CHECK (amount_minor > 0),
    withdrawn_at BIGINT NOT NULL,
    reinstated_at BIGINT
);
CREATE INDEX payment_disputes_payment_id ON payment_disputes (payment_id);
CREATE INDEX payment_disputes_organization_id ON payment_disputes (organization_id);

-- What the last comparison with Stripe has found, for the audit, and when it was.
CREATE TABLE payment_findings (
    object_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    organization_id TEXT COLLATE "C" NOT NULL,
    expected TEXT COLLATE "C" NOT NULL,
    found TEXT COLLATE "C" NOT NULL,
    found_at BIGINT NOT NULL
);
CREATE TABLE payment_comparisons (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    compared_at BIGINT NOT NULL
);
