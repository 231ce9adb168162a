-- Sessions that are long over are removed by the time at which they ended or would have.
CREATE INDEX sessions_expires_at ON sessions (expires_at);
CREATE INDEX sessions_ended_at ON sessions (ended_at);
