-- What was owed before, is on no other invoice, and is due with this one, beside its amount. NULL: made by a server from before this
-- column, which has it in the amount.
ALTER TABLE invoices ADD COLUMN brought_forward_nano INTEGER CHECK (brought_forward_nano >= 0);

CREATE TRIGGER invoices_brought_forward_no_rewrite BEFORE UPDATE OF brought_forward_nano ON invoices
    WHEN NEW.brought_forward_nano IS NOT OLD.brought_forward_nano
BEGIN
    SELECT RAISE(ABORT, 'invoices are append-only but for their payment');
END;
