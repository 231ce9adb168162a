-- Prices and volume discounts by version, each from an instant on: bills, corrections and rating read these, whatever a
-- catalog file says by now. The highest revision of a version counts; one without amounts takes the version back. There is more than one
-- only where the version had not come into effect, or nothing had been used in this installation, when the next one was recorded.
CREATE TABLE price_versions (
    model TEXT NOT NULL,
    effective_at INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    prompt_pico INTEGER CHECK (prompt_pico >= 0),
    completion_pico INTEGER CHECK (completion_pico >= 0),
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (model, effective_at, revision)
) STRICT, WITHOUT ROWID;
-- A version is the whole list: `tiers` has a threshold and a discount in parts per million for each, `1000000:50000 5000000:100000`;
-- an empty text is no discount at all, and none takes the version back.
CREATE TABLE discount_versions (
    effective_at INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    tiers TEXT,
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (effective_at, revision)
) STRICT, WITHOUT ROWID;
-- Each catalog that came in force: the one with the highest number is, and a server with another one is out of date.
CREATE TABLE catalogs (
    number INTEGER NOT NULL PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    currency TEXT NOT NULL,
    in_force_at INTEGER NOT NULL
) STRICT;
CREATE INDEX catalogs_fingerprint ON catalogs (fingerprint);
-- Its row is the lock of whoever puts a catalog in force.
INSERT INTO sequences (name, last) VALUES ('catalogs', 0);

CREATE TRIGGER price_versions_no_update BEFORE UPDATE ON price_versions
BEGIN
    SELECT RAISE(ABORT, 'price_versions is append-only');
END;
CREATE TRIGGER price_versions_no_delete BEFORE DELETE ON price_versions
BEGIN
    SELECT RAISE(ABORT, 'price_versions is append-only');
END;
CREATE TRIGGER discount_versions_no_update BEFORE UPDATE ON discount_versions
BEGIN
    SELECT RAISE(ABORT, 'discount_versions is append-only');
END;
CREATE TRIGGER discount_versions_no_delete BEFORE DELETE ON discount_versions
BEGIN
    SELECT RAISE(ABORT, 'discount_versions is append-only');
END;
CREATE TRIGGER catalogs_no_update BEFORE UPDATE ON catalogs
BEGIN
    SELECT RAISE(ABORT, 'catalogs is append-only');
END;
CREATE TRIGGER catalogs_no_delete BEFORE DELETE ON catalogs
BEGIN
    SELECT RAISE(ABORT, 'catalogs is append-only');
END;

-- Servers look for wallets of another currency than theirs.
CREATE INDEX wallets_currency ON wallets (currency);
