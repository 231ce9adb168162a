-- Money: wallets, a double-entry ledger, credits, reservations, billing months and invoices. `_nano` and `_pico` are 1e-9 and
-- 1e-12 of a currency; a month counts from 1970-01, so January 2026 is 672. None of these rows goes with an organization.

-- What an organization has: `posted_nano` is the sum of its ledger entries on the account `wallet`, negative when it owes;
-- `reserved_nano` the sum of its reservations. `open_month` is the first month that isn't closed: nothing is billed in
-- one before it. The row is locked by whoever changes any of this, after all other rows.
CREATE TABLE wallets (
    organization_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    currency TEXT NOT NULL,
    credit_limit_nano BIGINT NOT NULL CHECK (credit_limit_nano >= 0),
    posted_nano BIGINT NOT NULL,
    reserved_nano BIGINT NOT NULL CHECK (reserved_nano >= 0),
    open_month BIGINT NOT NULL,
    former_name TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX wallets_open_month ON wallets (open_month);

-- A movement of money. Its entries sum to zero, and its key makes it happen once.
CREATE TABLE ledger_transactions (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    organization_id TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL CHECK (kind IN ('usage', 'credit', 'credit_expiry', 'discount', 'payment', 'void')),
    idempotency_key TEXT COLLATE "C" NOT NULL,
    happened_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX ledger_transactions_organization_id_idempotency_key
    ON ledger_transactions (organization_id, idempotency_key);
CREATE TABLE ledger_entries (
    transaction_id TEXT COLLATE "C" NOT NULL REFERENCES ledger_transactions (id),
    account TEXT COLLATE "C" NOT NULL CHECK (account IN ('wallet', 'usage', 'discounts', 'purchases', 'grants', 'expired_credits',
        'payments', 'voided_invoices')),
    organization_id TEXT COLLATE "C" NOT NULL,
    amount_nano BIGINT NOT NULL,
    PRIMARY KEY (transaction_id, account)
);

-- A credit, and what is left of it. What a wallet has lies in its credits; what it owes is the sum of what is left of
-- them less `posted_nano`. One reference is one credit.
CREATE TABLE credits (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    organization_id TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL CHECK (kind IN ('grant', 'purchase', 'payment', 'correction', 'discount', 'void')),
    reference TEXT COLLATE "C" NOT NULL,
    amount_nano BIGINT NOT NULL CHECK (amount_nano > 0),
    remaining_nano BIGINT NOT NULL CHECK (remaining_nano >= 0),
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    expired_at BIGINT
);
CREATE UNIQUE INDEX credits_organization_id_reference ON credits (organization_id, reference);
CREATE INDEX credits_left ON credits (organization_id) WHERE remaining_nano > 0;
CREATE INDEX credits_expires_at ON credits (expires_at) WHERE remaining_nano > 0;

-- Money set aside for a call that is under way. The row goes with the capture, the release or the expiry.
CREATE TABLE reservations (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    organization_id TEXT COLLATE "C" NOT NULL,
    project_id TEXT COLLATE "C" NOT NULL,
    api_key_id TEXT COLLATE "C",
    model TEXT COLLATE "C" NOT NULL,
    amount_nano BIGINT NOT NULL CHECK (amount_nano >= 0),
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX reservations_expires_at ON reservations (expires_at);
CREATE INDEX reservations_organization_id_model ON reservations (organization_id, model);

-- Events may correct others of their source. An event may go once it is older than anything that could repeat it.
ALTER TABLE usage_events ADD COLUMN corrects TEXT COLLATE "C";
CREATE INDEX usage_events_corrects ON usage_events (organization_id, source, corrects) WHERE corrects IS NOT NULL;
CREATE TABLE retention (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    usage_events_before BIGINT NOT NULL
);
INSERT INTO retention (id, usage_events_before) VALUES (1, 0);
DROP TRIGGER usage_events_append_only ON usage_events;
CREATE TRIGGER usage_events_no_update BEFORE UPDATE ON usage_events
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE FUNCTION refuse_early_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.occurred_at >= (SELECT usage_events_before FROM retention) THEN
        RAISE EXCEPTION '% is append-only', TG_TABLE_NAME;
    END IF;
    RETURN OLD;
END;
$$;
CREATE TRIGGER usage_events_no_early_delete BEFORE DELETE ON usage_events
    FOR EACH ROW EXECUTE FUNCTION refuse_early_delete();

-- Daily rows say in which month they are billed: their own, or a later one for usage reported when that was closed.
-- `posted_nano` is what the ledger has of them: the whole nanos of their amount.
CREATE TABLE usage_daily_billed (
    organization_id TEXT COLLATE "C" NOT NULL,
    project_id TEXT COLLATE "C" NOT NULL,
    api_key_id TEXT COLLATE "C" NOT NULL,
    model TEXT COLLATE "C" NOT NULL,
    price_version BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL CHECK (kind IN ('chat', 'embeddings')),
    day BIGINT NOT NULL,
    month BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    amount_pico BIGINT NOT NULL,
    posted_nano BIGINT NOT NULL,
    PRIMARY KEY (organization_id, project_id, day, api_key_id, model, price_version, kind, month)
);
INSERT INTO usage_daily_billed
    SELECT organization_id, project_id, api_key_id, model, price_version, kind, day,
           CAST((EXTRACT(YEAR FROM to_timestamp((day * 86400000) / 1000) AT TIME ZONE 'UTC') - 1970) * 12 + EXTRACT(MONTH FROM to_timestamp((day * 86400000) / 1000) AT TIME ZONE 'UTC') - 1 AS BIGINT),
           requests, prompt_tokens, completion_tokens, amount_pico, amount_pico / 1000
    FROM usage_daily;
DROP TABLE usage_daily;
ALTER TABLE usage_daily_billed RENAME TO usage_daily;
ALTER TABLE usage_daily RENAME CONSTRAINT usage_daily_billed_pkey TO usage_daily_pkey;
ALTER TABLE usage_daily RENAME CONSTRAINT usage_daily_billed_kind_check TO usage_daily_kind_check;
CREATE INDEX usage_daily_api_key_id_day ON usage_daily (api_key_id, day);
CREATE INDEX usage_daily_organization_day ON usage_daily (organization_id, day);
CREATE INDEX usage_daily_organization_month ON usage_daily (organization_id, month);

-- An invoice: what was billed in a month, once an organization. Numbers have no gaps. `due_nano` is what the wallet didn't have.
CREATE TABLE invoices (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    number BIGINT NOT NULL,
    organization_id TEXT COLLATE "C" NOT NULL,
    organization_name TEXT NOT NULL,
    month BIGINT NOT NULL,
    currency TEXT NOT NULL,
    amount_nano BIGINT NOT NULL,
    due_nano BIGINT NOT NULL CHECK (due_nano >= 0),
    status TEXT COLLATE "C" NOT NULL CHECK (status IN ('draft', 'open', 'paid', 'void', 'uncollectible')),
    finalized_at BIGINT NOT NULL,
    paid_at BIGINT,
    voided_at BIGINT
);
CREATE UNIQUE INDEX invoices_number ON invoices (number);
CREATE UNIQUE INDEX invoices_organization_id_month ON invoices (organization_id, month);
-- `unit_price` and `amount` are exact decimals in the currency, as text: sums of a month may pass 64 bits of pico.
CREATE TABLE invoice_items (
    invoice_id TEXT COLLATE "C" NOT NULL REFERENCES invoices (id),
    position BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL CHECK (kind IN ('usage', 'late_usage', 'discount', 'rounding')),
    description TEXT NOT NULL,
    quantity BIGINT NOT NULL,
    unit_price TEXT NOT NULL,
    amount TEXT NOT NULL,
    PRIMARY KEY (invoice_id, position)
);
CREATE TABLE sequences (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    last BIGINT NOT NULL
);
INSERT INTO sequences (name, last) VALUES ('invoices', 0);

-- What was recorded about money stays as it was recorded.
CREATE TRIGGER ledger_transactions_append_only BEFORE UPDATE OR DELETE ON ledger_transactions
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_transactions_no_truncate BEFORE TRUNCATE ON ledger_transactions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_entries_append_only BEFORE UPDATE OR DELETE ON ledger_entries
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_entries_no_truncate BEFORE TRUNCATE ON ledger_entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER invoice_items_append_only BEFORE UPDATE OR DELETE ON invoice_items
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER invoice_items_no_truncate BEFORE TRUNCATE ON invoice_items
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER invoices_no_delete BEFORE DELETE ON invoices
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER invoices_no_truncate BEFORE TRUNCATE ON invoices
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Who does a job that only one replica may do, and until when that holds.
CREATE TABLE job_leases (
    job TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    holder TEXT COLLATE "C" NOT NULL,
    leased_until BIGINT NOT NULL
);

-- The meters of request rates that replicas share: `level` is what was used, `lent` what replicas have borrowed and not reported yet in
-- the term of `at`, `lent_before` in the one before.
CREATE TABLE rate_meters (
    meter BYTEA NOT NULL PRIMARY KEY,
    per_minute BIGINT NOT NULL,
    level BIGINT NOT NULL,
    at BIGINT NOT NULL,
    lent BIGINT NOT NULL,
    lent_before BIGINT NOT NULL
);
CREATE INDEX rate_meters_at ON rate_meters (at);

-- Everybody gets a wallet, and what was used before there were any is in it.
INSERT INTO wallets (organization_id, currency, credit_limit_nano, posted_nano, reserved_nano, open_month, created_at, updated_at)
    SELECT id, currency, credit_limit_nano,
           -CAST(COALESCE((SELECT SUM(posted_nano) FROM usage_daily d WHERE d.organization_id = organizations.id), 0) AS BIGINT), 0,
           CAST((EXTRACT(YEAR FROM to_timestamp(created_at / 1000) AT TIME ZONE 'UTC') - 1970) * 12 + EXTRACT(MONTH FROM to_timestamp(created_at / 1000) AT TIME ZONE 'UTC') - 1 AS BIGINT),
           created_at, updated_at
    FROM organizations;
INSERT INTO wallets (organization_id, currency, credit_limit_nano, posted_nano, reserved_nano, open_month, created_at, updated_at)
    SELECT organization_id, 'USD', 0, -CAST(SUM(posted_nano) AS BIGINT), 0, MIN(month), MIN(day) * 86400000, MIN(day) * 86400000
    FROM usage_daily WHERE organization_id NOT IN (SELECT organization_id FROM wallets) GROUP BY organization_id;
INSERT INTO ledger_transactions (id, organization_id, kind, idempotency_key, happened_at)
    SELECT 'ltx_' || SUBSTR(organization_id, 5), organization_id, 'usage', 'usage:before-the-ledger', updated_at
    FROM wallets WHERE posted_nano <> 0;
INSERT INTO ledger_entries (transaction_id, account, organization_id, amount_nano)
    SELECT 'ltx_' || SUBSTR(organization_id, 5), 'wallet', organization_id, posted_nano FROM wallets WHERE posted_nano <> 0;
INSERT INTO ledger_entries (transaction_id, account, organization_id, amount_nano)
    SELECT 'ltx_' || SUBSTR(organization_id, 5), 'usage', organization_id, -posted_nano FROM wallets WHERE posted_nano <> 0;
ALTER TABLE organizations DROP COLUMN currency;
ALTER TABLE organizations DROP COLUMN credit_limit_nano;
