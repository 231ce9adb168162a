-- The month in which an event is billed: its own, or a later one when that was closed. A correction has that of the event that it
-- corrects. NULL: recorded before there was this column.
ALTER TABLE usage_events ADD COLUMN billed_month INTEGER;

-- The first instant at which a credit with something left ends; whoever locks the wallet later ends it. NULL: none does.
ALTER TABLE wallets ADD COLUMN next_expiry_at INTEGER;
UPDATE wallets SET next_expiry_at = (SELECT MIN(c.expires_at) FROM credits c
    WHERE c.organization_id = wallets.organization_id AND c.remaining_nano > 0 AND c.expires_at IS NOT NULL);

-- How much of a credit paid for what was billed in a month: what is given back of that month goes back into it.
CREATE TABLE credit_uses (
    organization_id TEXT NOT NULL,
    month INTEGER NOT NULL,
    credit_id TEXT NOT NULL REFERENCES credits (id),
    amount_nano INTEGER NOT NULL CHECK (amount_nano >= 0),
    PRIMARY KEY (organization_id, month, credit_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX credit_uses_credit_id ON credit_uses (credit_id);

-- A credit note: what corrections took back of an invoice. `amount_nano` is less than nothing where a correction cost a discount that
-- was worth more than the tokens. Its numbers have no gaps. `booked_month` is the month that was open when it was made.
CREATE TABLE credit_notes (
    id TEXT NOT NULL PRIMARY KEY,
    number INTEGER NOT NULL,
    organization_id TEXT NOT NULL,
    invoice_id TEXT NOT NULL REFERENCES invoices (id),
    month INTEGER NOT NULL,
    booked_month INTEGER NOT NULL,
    reference TEXT NOT NULL,
    amount_nano INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX credit_notes_number ON credit_notes (number);
CREATE INDEX credit_notes_organization_id_month ON credit_notes (organization_id, month);
CREATE TABLE credit_note_items (
    credit_note_id TEXT NOT NULL REFERENCES credit_notes (id),
    position INTEGER NOT NULL,
    kind TEXT NOT NULL,
    description TEXT NOT NULL,
    quantity INTEGER NOT NULL,
    unit_price TEXT NOT NULL,
    amount TEXT NOT NULL,
    PRIMARY KEY (credit_note_id, position)
) STRICT, WITHOUT ROWID;

-- The part of daily rows that is in credit notes, and so in no invoice: their rows have the month that was open (`booked_month`), what
-- they take back was billed in `month`. Tokens and amounts are 0 or less.
CREATE TABLE credited_usage (
    organization_id TEXT NOT NULL,
    booked_month INTEGER NOT NULL,
    month INTEGER NOT NULL,
    day INTEGER NOT NULL,
    model TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('chat', 'embeddings')),
    price_version INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    amount_whole INTEGER NOT NULL,
    amount_pico INTEGER NOT NULL,
    posted_nano INTEGER NOT NULL,
    PRIMARY KEY (organization_id, booked_month, month, day, model, kind, price_version)
) STRICT, WITHOUT ROWID;

INSERT INTO sequences (name, last) VALUES ('credit_notes', 0);

CREATE TRIGGER credit_notes_no_update BEFORE UPDATE ON credit_notes
BEGIN
    SELECT RAISE(ABORT, 'credit_notes is append-only');
END;
CREATE TRIGGER credit_notes_no_delete BEFORE DELETE ON credit_notes
BEGIN
    SELECT RAISE(ABORT, 'credit_notes is append-only');
END;
CREATE TRIGGER credit_note_items_no_update BEFORE UPDATE ON credit_note_items
BEGIN
    SELECT RAISE(ABORT, 'credit_note_items is append-only');
END;
CREATE TRIGGER credit_note_items_no_delete BEFORE DELETE ON credit_note_items
BEGIN
    SELECT RAISE(ABORT, 'credit_note_items is append-only');
END;

-- More words: a debt that is given up, and a debt that stood on no invoice. A CHECK can't be changed here, so the tables are made anew.
CREATE TABLE ledger_transactions_new (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('usage', 'credit', 'credit_expiry', 'discount', 'payment', 'void', 'write_off')),
    idempotency_key TEXT NOT NULL,
    happened_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO ledger_transactions_new SELECT id, organization_id, kind, idempotency_key, happened_at FROM ledger_transactions;
CREATE TABLE ledger_entries_new (
    transaction_id TEXT NOT NULL REFERENCES ledger_transactions_new (id),
    account TEXT NOT NULL CHECK (account IN ('wallet', 'usage', 'discounts', 'purchases', 'grants', 'expired_credits',
        'payments', 'voided_invoices', 'written_off')),
    organization_id TEXT NOT NULL,
    amount_nano INTEGER NOT NULL,
    PRIMARY KEY (transaction_id, account)
) STRICT, WITHOUT ROWID;
INSERT INTO ledger_entries_new SELECT transaction_id, account, organization_id, amount_nano FROM ledger_entries;
DROP TABLE ledger_entries;
DROP TABLE ledger_transactions;
ALTER TABLE ledger_transactions_new RENAME TO ledger_transactions;
ALTER TABLE ledger_entries_new RENAME TO ledger_entries;
CREATE UNIQUE INDEX ledger_transactions_organization_id_idempotency_key
    ON ledger_transactions (organization_id, idempotency_key);
CREATE TABLE invoice_items_new (
    invoice_id TEXT NOT NULL REFERENCES invoices (id),
    position INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('usage', 'late_usage', 'discount', 'rounding', 'carried_over')),
    description TEXT NOT NULL,
    quantity INTEGER NOT NULL,
    unit_price TEXT NOT NULL,
    amount TEXT NOT NULL,
    PRIMARY KEY (invoice_id, position)
) STRICT, WITHOUT ROWID;
INSERT INTO invoice_items_new SELECT invoice_id, position, kind, description, quantity, unit_price, amount FROM invoice_items;
DROP TABLE invoice_items;
ALTER TABLE invoice_items_new RENAME TO invoice_items;
CREATE TRIGGER ledger_transactions_no_update BEFORE UPDATE ON ledger_transactions
BEGIN
    SELECT RAISE(ABORT, 'ledger_transactions is append-only');
END;
CREATE TRIGGER ledger_transactions_no_delete BEFORE DELETE ON ledger_transactions
BEGIN
    SELECT RAISE(ABORT, 'ledger_transactions is append-only');
END;
CREATE TRIGGER ledger_entries_no_update BEFORE UPDATE ON ledger_entries
BEGIN
    SELECT RAISE(ABORT, 'ledger_entries is append-only');
END;
CREATE TRIGGER ledger_entries_no_delete BEFORE DELETE ON ledger_entries
BEGIN
    SELECT RAISE(ABORT, 'ledger_entries is append-only');
END;
CREATE TRIGGER invoice_items_no_update BEFORE UPDATE ON invoice_items
BEGIN
    SELECT RAISE(ABORT, 'invoice_items is append-only');
END;
CREATE TRIGGER invoice_items_no_delete BEFORE DELETE ON invoice_items
BEGIN
    SELECT RAISE(ABORT, 'invoice_items is append-only');
END;
