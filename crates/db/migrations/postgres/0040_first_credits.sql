-- The wallet of a person's first organization, while no operator has set its credit limit: it has the credit of the built-in demo.
ALTER TABLE wallets ADD COLUMN has_demo_credit BIGINT NOT NULL DEFAULT 0 CHECK (has_demo_credit IN (0, 1));

-- Mailboxes whose person has had the first credit limit: one for a mailbox, whatever tags and quotes its addresses have. It is the
-- plain form of an address (`PlainMailbox`).
CREATE TABLE first_credits (
    mailbox TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    granted_at BIGINT NOT NULL
);
-- Quoted addresses are rare, and left out: their accounts have their mark all the same.
INSERT INTO first_credits (mailbox, granted_at)
    SELECT mailbox, MIN(granted_at) FROM (
        SELECT CASE WHEN strpos(email_folded, '+') > 1 AND strpos(email_folded, '+') < strpos(email_folded, '@')
                    THEN substr(email_folded, 1, strpos(email_folded, '+') - 1) || substr(email_folded, strpos(email_folded, '@'))
                    ELSE email_folded END AS mailbox,
               credit_granted_at AS granted_at
        FROM users WHERE credit_granted_at IS NOT NULL AND email_folded NOT LIKE '"%'
    ) granted GROUP BY mailbox;
