-- What the audit recounts from, beside what the books are made from.

-- What Stripe said of a payment, a refund or a dispute when it was last read. Nothing is booked by it. `state` is `made`, `failed` or
-- `won`; `moved` is what a dispute has moved: `time:amount:currency` for each of its movements.
CREATE TABLE payment_statements (
    object_id TEXT NOT NULL PRIMARY KEY,
    payment_id TEXT NOT NULL,
    organization_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('payment', 'refund', 'dispute')),
    state TEXT NOT NULL,
    amount_minor INTEGER NOT NULL,
    currency TEXT NOT NULL,
    moved TEXT NOT NULL,
    stated_at INTEGER NOT NULL
) STRICT;
CREATE INDEX payment_statements_organization_id ON payment_statements (organization_id);

-- The most that an automatic top-up was allowed to charge; NULL: a version before this column charged it.
ALTER TABLE payments ADD COLUMN maximum_minor INTEGER;

-- Each credit limit that a wallet had, from the first one on: whoever writes that of a wallet adds a row here.
CREATE TABLE credit_limit_changes (
    organization_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    credit_limit_nano INTEGER NOT NULL,
    has_demo_credit INTEGER NOT NULL CHECK (has_demo_credit IN (0, 1)),
    PRIMARY KEY (organization_id, number)
) STRICT, WITHOUT ROWID;
INSERT INTO credit_limit_changes (organization_id, number, credit_limit_nano, has_demo_credit)
    SELECT organization_id, 1, credit_limit_nano, has_demo_credit FROM wallets;
CREATE TRIGGER credit_limit_changes_no_update BEFORE UPDATE ON credit_limit_changes
BEGIN
    SELECT RAISE(ABORT, 'credit_limit_changes is append-only');
END;
CREATE TRIGGER credit_limit_changes_no_delete BEFORE DELETE ON credit_limit_changes
BEGIN
    SELECT RAISE(ABORT, 'credit_limit_changes is append-only');
END;
