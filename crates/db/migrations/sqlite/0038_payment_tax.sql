-- Tax by Stripe. `amount_minor` of a payment stays what is credited; `tax_minor` is what is paid on top of it: NULL until Stripe has computed
-- it. `is_taxed` is 1 if Stripe is to compute one. `tax_calculation_id` is that of a charge of a saved card. `receipt_url` is the page of
-- Stripe with its invoice or receipt.
ALTER TABLE payments ADD COLUMN is_taxed INTEGER NOT NULL DEFAULT 0 CHECK (is_taxed IN (0, 1));
ALTER TABLE payments ADD COLUMN tax_minor INTEGER DEFAULT 0 CHECK (tax_minor >= 0);
ALTER TABLE payments ADD COLUMN tax_calculation_id TEXT;
ALTER TABLE payments ADD COLUMN receipt_url TEXT;
-- The tax in what was refunded and is disputed; `refunded_minor` and `disputed_minor` are without it.
ALTER TABLE payments ADD COLUMN returned_tax_minor INTEGER NOT NULL DEFAULT 0;
-- `amount_minor` of refunds and disputes is the amount at Stripe, and `tax_minor` the part of it that is tax: the wallet loses the rest.
ALTER TABLE payment_refunds ADD COLUMN tax_minor INTEGER NOT NULL DEFAULT 0;
ALTER TABLE payment_disputes ADD COLUMN tax_minor INTEGER NOT NULL DEFAULT 0;

-- One more reason of a pause. Its words are no longer listed here: the program knows them.
CREATE TABLE auto_top_ups_of_any_pause (
    organization_id TEXT NOT NULL PRIMARY KEY,
    is_enabled INTEGER NOT NULL CHECK (is_enabled IN (0, 1)),
    threshold_nano INTEGER NOT NULL,
    restore_to_nano INTEGER NOT NULL,
    monthly_cap_nano INTEGER,
    paused_reason TEXT,
    failures INTEGER NOT NULL DEFAULT 0,
    next_try_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
INSERT INTO auto_top_ups_of_any_pause (organization_id, is_enabled, threshold_nano, restore_to_nano, monthly_cap_nano, paused_reason,
        failures, next_try_at, created_at, updated_at)
    SELECT organization_id, is_enabled, threshold_nano, restore_to_nano, monthly_cap_nano, paused_reason, failures, next_try_at,
        created_at, updated_at FROM auto_top_ups;
DROP TABLE auto_top_ups;
ALTER TABLE auto_top_ups_of_any_pause RENAME TO auto_top_ups;
CREATE INDEX auto_top_ups_next_try_at ON auto_top_ups (next_try_at) WHERE next_try_at IS NOT NULL;
