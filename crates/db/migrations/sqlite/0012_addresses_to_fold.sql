-- E-mail addresses are compared in a form that earlier versions made in another way, for domains outside of ASCII or in the
-- DNS's own letters (`xn--`). SQL can't make it: these rows wait for the server's start, which makes it and removes them.
CREATE TABLE addresses_to_fold (
    id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL
) STRICT;
INSERT INTO addresses_to_fold (id, kind)
    SELECT id, 'user' FROM users WHERE octet_length(email) <> length(email) OR email_folded LIKE '%xn--%';
INSERT INTO addresses_to_fold (id, kind)
    SELECT id, 'invitation' FROM invitations
    WHERE ended_at IS NULL AND (octet_length(email) <> length(email) OR email_folded LIKE '%xn--%');
