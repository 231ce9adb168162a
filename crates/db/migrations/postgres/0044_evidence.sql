-- What the audit recounts from, beside what the books are made from.

-- What Stripe said of a payment, a refund or a dispute when it was last read. Nothing is booked by it. `state` is `made`, `failed` or
-- `won`; `moved` is what a dispute has moved: `time:amount:currency` for each of its movements.
CREATE TABLE payment_statements (
    object_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    payment_id TEXT COLLATE "C" NOT NULL,
    organization_id TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL CHECK (kind IN ('payment', 'refund', 'dispute')),
    state TEXT COLLATE "C" NOT NULL,
    amount_minor BIGINT NOT NULL,
    currency TEXT COLLATE "C" NOT NULL,
    moved TEXT COLLATE "C" NOT NULL,
    stated_at BIGINT NOT NULL
);
CREATE INDEX payment_statements_organization_id ON payment_statements (organization_id);

-- The most that an automatic top-up was allowed to charge; NULL: a version before this column charged it.
ALTER TABLE payments ADD COLUMN maximum_minor BIGINT;

-- Each credit limit that a wallet had, from the first one on: whoever writes that of a wallet adds a row here.
CREATE TABLE credit_limit_changes (
    organization_id TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    credit_limit_nano BIGINT NOT NULL,
    has_demo_credit BIGINT NOT NULL CHECK (has_demo_credit IN (0, 1)),
    PRIMARY KEY (organization_id, number)
);
INSERT INTO credit_limit_changes (organization_id, number, credit_limit_nano, has_demo_credit)
    SELECT organization_id, 1, credit_limit_nano, has_demo_credit FROM wallets;
CREATE TRIGGER credit_limit_changes_append_only BEFORE UPDATE OR DELETE ON credit_limit_changes
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER credit_limit_changes_no_truncate BEFORE TRUNCATE ON credit_limit_changes
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
