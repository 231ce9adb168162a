-- The newest time by which the service is known to have run, since when it has done so without a gap, and when an operator last said
-- that the time is right: one row.
CREATE TABLE service_clock (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    last_seen_at BIGINT NOT NULL,
    up_since_at BIGINT NOT NULL,
    accepted_at BIGINT
);
