-- One row, which some replica changes each second. A primary that was replaced without knowing it can't commit that while it
-- has a synchronous standby. So replicas trust their memory only while they see it change. SQLite has one process, which
-- doesn't need it.
CREATE TABLE heartbeat (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    number BIGINT NOT NULL,
    -- The timeline of the primary as far as the replica knows it; 0 if it doesn't.
    timeline BIGINT NOT NULL
);
INSERT INTO heartbeat (id, number, timeline) VALUES (1, 0, 0);
