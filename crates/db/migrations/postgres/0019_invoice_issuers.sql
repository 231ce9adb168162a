-- An invoice holds its issuer as it was when the invoice was made; '' where none was configured. NULL: made before there were these
-- columns; the next start fills them in from the configuration.
ALTER TABLE invoices ADD COLUMN issuer_name TEXT;
ALTER TABLE invoices ADD COLUMN issuer_address TEXT;
CREATE INDEX invoices_without_issuer ON invoices (id) WHERE issuer_name IS NULL;

-- Of an invoice only its payment changes: what is due, where it stands, and since when.
CREATE TRIGGER invoices_no_rewrite BEFORE UPDATE ON invoices FOR EACH ROW
    WHEN (NEW.id <> OLD.id OR NEW.number <> OLD.number OR NEW.organization_id <> OLD.organization_id
        OR NEW.organization_name <> OLD.organization_name OR NEW.month <> OLD.month OR NEW.currency <> OLD.currency
        OR NEW.amount_nano <> OLD.amount_nano OR NEW.finalized_at <> OLD.finalized_at
        OR (OLD.issuer_name IS NOT NULL AND NEW.issuer_name IS DISTINCT FROM OLD.issuer_name)
        OR (OLD.issuer_address IS NOT NULL AND NEW.issuer_address IS DISTINCT FROM OLD.issuer_address))
    EXECUTE FUNCTION refuse_change();
