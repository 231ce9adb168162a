-- Tax by Stripe. `amount_minor` of a payment stays what is credited; `tax_minor` is what is paid on top of it: NULL until Stripe has computed
-- it. `is_taxed` is 1 if Stripe is to compute one. `tax_calculation_id` is that of a charge of a saved card. `receipt_url` is the page of
-- Stripe with its invoice or receipt.
ALTER TABLE payments ADD COLUMN is_taxed BIGINT NOT NULL DEFAULT 0 CHECK (is_taxed IN (0, 1));
ALTER TABLE payments ADD COLUMN tax_minor BIGINT DEFAULT 0 CHECK (tax_minor >= 0);
ALTER TABLE payments ADD COLUMN tax_calculation_id TEXT COLLATE "C";
ALTER TABLE payments ADD COLUMN receipt_url TEXT COLLATE "C";
-- The tax in what was refunded and is disputed; `refunded_minor` and `disputed_minor` are without it.
ALTER TABLE payments ADD COLUMN returned_tax_minor BIGINT NOT NULL DEFAULT 0;
-- `amount_minor` of refunds and disputes is the amount at Stripe, and `tax_minor` the part of it that is tax: the wallet loses the rest.
ALTER TABLE payment_refunds ADD COLUMN tax_minor BIGINT NOT NULL DEFAULT 0;
ALTER TABLE payment_disputes ADD COLUMN tax_minor BIGINT NOT NULL DEFAULT 0;

-- One more reason of a pause. Its words are no longer listed here: the program knows them.
ALTER TABLE auto_top_ups DROP CONSTRAINT IF EXISTS auto_top_ups_paused_reason_check;
