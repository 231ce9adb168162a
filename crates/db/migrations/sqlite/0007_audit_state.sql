-- When the servers check the books next, and what the last check found: one row.
CREATE TABLE audit_state (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    due_at INTEGER NOT NULL,
    ended_at INTEGER,
    organizations INTEGER NOT NULL DEFAULT 0,
    drifts INTEGER NOT NULL DEFAULT 0
) STRICT;
