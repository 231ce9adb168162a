-- A dispute is what the bank has of a payment. It may bring back a part of it, and take that again: `amount_minor` and `tax_minor` are what
-- it has, or what it had before `reinstated_at`. Each booking has a number, by which the keys of its movements differ.
ALTER TABLE payment_disputes ADD COLUMN bookings INTEGER NOT NULL DEFAULT 1;
