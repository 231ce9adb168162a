-- 1: members whom a provider of the organization speaks for get in only by a sign-on with it; API keys and owners aren't asked.
ALTER TABLE organizations ADD COLUMN require_sign_on INTEGER NOT NULL DEFAULT 0;

-- Operators see the open invoices of all organizations, however many are paid.
CREATE INDEX invoices_open ON invoices (number) WHERE status = 'open';
