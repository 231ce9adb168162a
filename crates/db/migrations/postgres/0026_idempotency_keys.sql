-- The answers to requests with an idempotency key, to be sent again. `id`: a digest of caller, method, path and key; `content_hash`: of
-- the query and the body. `answer`: status, headers and body, sealed under the master key; NULL while the request of `holder` runs, until
-- `leased_until` at most.
CREATE TABLE idempotency_keys (
    id BYTEA NOT NULL PRIMARY KEY,
    content_hash BYTEA NOT NULL,
    holder TEXT COLLATE "C" NOT NULL,
    leased_until BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    answer BYTEA
);
CREATE INDEX idempotency_keys_created_at ON idempotency_keys (created_at);
