-- When and from where each key was used last, apart from the keys: it is written behind for as many keys as are used, every
-- few seconds, and rows this short share a page with many others. Not in `api_keys` any more from here on; its columns stay
-- for the servers of an earlier version that run beside this one, and are read for what those write.
CREATE TABLE api_key_last_uses (
    api_key_id TEXT NOT NULL PRIMARY KEY REFERENCES api_keys (id) ON DELETE CASCADE,
    last_used_at INTEGER NOT NULL,
    last_used_ip TEXT
) STRICT, WITHOUT ROWID;
