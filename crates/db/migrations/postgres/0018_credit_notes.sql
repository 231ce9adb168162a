-- The month in which an event is billed: its own, or a later one when that was closed. A correction has that of the event that it
-- corrects. NULL: recorded before there was this column.
ALTER TABLE usage_events ADD COLUMN billed_month BIGINT;

-- The first instant at which a credit with something left ends; whoever locks the wallet later ends it. NULL: none does.
ALTER TABLE wallets ADD COLUMN next_expiry_at BIGINT;
UPDATE wallets SET next_expiry_at = (SELECT MIN(c.expires_at) FROM credits c
    WHERE c.organization_id = wallets.organization_id AND c.remaining_nano > 0 AND c.expires_at IS NOT NULL);

-- How much of a credit paid for what was billed in a month: what is given back of that month goes back into it.
CREATE TABLE credit_uses (
    organization_id TEXT COLLATE "C" NOT NULL,
    month BIGINT NOT NULL,
    credit_id TEXT COLLATE "C" NOT NULL REFERENCES credits (id),
    amount_nano BIGINT NOT NULL CHECK (amount_nano >= 0),
    PRIMARY KEY (organization_id, month, credit_id)
);
CREATE INDEX credit_uses_credit_id ON credit_uses (credit_id);

-- A credit note: what corrections took back of an invoice. `amount_nano` is less than nothing where a correction cost a discount that
-- was worth more than the tokens. Its numbers have no gaps. `booked_month` is the month that was open when it was made.
CREATE TABLE credit_notes (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    number BIGINT NOT NULL,
    organization_id TEXT COLLATE "C" NOT NULL,
    invoice_id TEXT COLLATE "C" NOT NULL REFERENCES invoices (id),
    month BIGINT NOT NULL,
    booked_month BIGINT NOT NULL,
    reference TEXT NOT NULL,
    amount_nano BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX credit_notes_number ON credit_notes (number);
CREATE INDEX credit_notes_organization_id_month ON credit_notes (organization_id, month);
CREATE TABLE credit_note_items (
    credit_note_id TEXT COLLATE "C" NOT NULL REFERENCES credit_notes (id),
    position BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    description TEXT NOT NULL,
    quantity BIGINT NOT NULL,
    unit_price TEXT NOT NULL,
    amount TEXT NOT NULL,
    PRIMARY KEY (credit_note_id, position)
);

-- The part of daily rows that is in credit notes, and so in no invoice: their rows have the month that was open (`booked_month`), what
-- they take back was billed in `month`. Tokens and amounts are 0 or less.
CREATE TABLE credited_usage (
    organization_id TEXT COLLATE "C" NOT NULL,
    booked_month BIGINT NOT NULL,
    month BIGINT NOT NULL,
    day BIGINT NOT NULL,
    model TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL CHECK (kind IN ('chat', 'embeddings')),
    price_version BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    amount_whole BIGINT NOT NULL,
    amount_pico BIGINT NOT NULL,
    posted_nano BIGINT NOT NULL,
    PRIMARY KEY (organization_id, booked_month, month, day, model, kind, price_version)
);

INSERT INTO sequences (name, last) VALUES ('credit_notes', 0);

CREATE TRIGGER credit_notes_append_only BEFORE UPDATE OR DELETE ON credit_notes
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER credit_notes_no_truncate BEFORE TRUNCATE ON credit_notes
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER credit_note_items_append_only BEFORE UPDATE OR DELETE ON credit_note_items
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER credit_note_items_no_truncate BEFORE TRUNCATE ON credit_note_items
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- More words: a debt that is given up, and a debt that stood on no invoice.
ALTER TABLE ledger_transactions DROP CONSTRAINT ledger_transactions_kind_check;
ALTER TABLE ledger_transactions ADD CONSTRAINT ledger_transactions_kind_check
    CHECK (kind IN ('usage', 'credit', 'credit_expiry', 'discount', 'payment', 'void', 'write_off')) NOT VALID;
ALTER TABLE ledger_entries DROP CONSTRAINT ledger_entries_account_check;
ALTER TABLE ledger_entries ADD CONSTRAINT ledger_entries_account_check
    CHECK (account IN ('wallet', 'usage', 'discounts', 'purchases', 'grants', 'expired_credits', 'payments', 'voided_invoices',
        'written_off')) NOT VALID;
ALTER TABLE invoice_items DROP CONSTRAINT invoice_items_kind_check;
ALTER TABLE invoice_items ADD CONSTRAINT invoice_items_kind_check
    CHECK (kind IN ('usage', 'late_usage', 'discount', 'rounding', 'carried_over')) NOT VALID;
