-- Prices and volume discounts by version, each from an instant on: bills, corrections and rating read these, whatever a
-- catalog file says by now. The highest revision of a version counts; one without amounts takes the version back. There is more than one
-- only where the version had not come into effect, or nothing had been used in this installation, when the next one was recorded.
CREATE TABLE price_versions (
    model TEXT COLLATE "C" NOT NULL,
    effective_at BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    prompt_pico BIGINT CHECK (prompt_pico >= 0),
    completion_pico BIGINT CHECK (completion_pico >= 0),
    recorded_at BIGINT NOT NULL,
    PRIMARY KEY (model, effective_at, revision)
);
-- A version is the whole list: `tiers` has a threshold and a discount in parts per million for each, `1000000:50000 5000000:100000`;
-- an empty text is no discount at all, and none takes the version back.
CREATE TABLE discount_versions (
    effective_at BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    tiers TEXT,
    recorded_at BIGINT NOT NULL,
    PRIMARY KEY (effective_at, revision)
);
-- Each catalog that came in force: the one with the highest number is, and a server with another one is out of date.
CREATE TABLE catalogs (
    number BIGINT NOT NULL PRIMARY KEY,
    fingerprint TEXT COLLATE "C" NOT NULL,
    currency TEXT NOT NULL,
    in_force_at BIGINT NOT NULL
);
CREATE INDEX catalogs_fingerprint ON catalogs (fingerprint);
-- Its row is the lock of whoever puts a catalog in force.
INSERT INTO sequences (name, last) VALUES ('catalogs', 0);

CREATE TRIGGER price_versions_append_only BEFORE UPDATE OR DELETE ON price_versions
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER price_versions_no_truncate BEFORE TRUNCATE ON price_versions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER discount_versions_append_only BEFORE UPDATE OR DELETE ON discount_versions
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER discount_versions_no_truncate BEFORE TRUNCATE ON discount_versions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER catalogs_append_only BEFORE UPDATE OR DELETE ON catalogs
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER catalogs_no_truncate BEFORE TRUNCATE ON catalogs
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Servers look for wallets of another currency than theirs.
CREATE INDEX wallets_currency ON wallets (currency);
