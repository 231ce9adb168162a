-- When the servers check the books next, and what the last check found: one row.
CREATE TABLE audit_state (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    due_at BIGINT NOT NULL,
    ended_at BIGINT,
    organizations BIGINT NOT NULL DEFAULT 0,
    drifts BIGINT NOT NULL DEFAULT 0
);
