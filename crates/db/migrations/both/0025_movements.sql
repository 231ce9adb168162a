-- The movements and the credits of an organization, the newest first.
CREATE INDEX ledger_transactions_organization_id_happened_at
    ON ledger_transactions (organization_id, happened_at DESC, id);
CREATE INDEX credits_organization_id_created_at ON credits (organization_id, created_at DESC, id);
