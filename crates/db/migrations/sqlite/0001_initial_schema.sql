-- The schema's first version. Times are unix milliseconds, booleans 0 or 1, `_nano` and `_pico` money in 1e-9 and
-- 1e-12 of a currency. The same tables, columns and indexes as on PostgreSQL; a test compares them.

-- A person's account. The folded columns are what is unique: names differ by more than case.
CREATE TABLE users (
    id TEXT NOT NULL PRIMARY KEY,
    email TEXT NOT NULL,
    email_folded TEXT NOT NULL,
    username TEXT NOT NULL,
    username_folded TEXT NOT NULL,
    full_name TEXT,
    phone TEXT,
    password_hash TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    email_verified_at INTEGER,
    phone_verified_at INTEGER,
    last_login_at INTEGER
) STRICT;
CREATE UNIQUE INDEX users_email_folded ON users (email_folded);
CREATE UNIQUE INDEX users_username_folded ON users (username_folded);

-- A link that was sent by e-mail; at most one of each purpose a person. Only the token's hash is kept.
CREATE TABLE email_tokens (
    token_hash BLOB NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    purpose TEXT NOT NULL CHECK (purpose IN ('verify_email', 'reset_password')),
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX email_tokens_user_id_purpose ON email_tokens (user_id, purpose);

-- A login: its tokens work until it ends or expires.
CREATE TABLE sessions (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    remember_me INTEGER NOT NULL CHECK (remember_me IN (0, 1)),
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    ended_at INTEGER
) STRICT;
CREATE INDEX sessions_user_id ON sessions (user_id);

-- A key pair that signs access tokens. The private half is sealed by the master key.
CREATE TABLE signing_keys (
    kid TEXT NOT NULL PRIMARY KEY,
    public_key BLOB NOT NULL,
    sealed_private_key BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    retired_at INTEGER
) STRICT;

-- Who owns projects and pays for them.
CREATE TABLE organizations (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    name_folded TEXT NOT NULL,
    description TEXT,
    default_role TEXT NOT NULL CHECK (default_role IN ('member', 'admin')),
    allow_public_projects INTEGER NOT NULL CHECK (allow_public_projects IN (0, 1)),
    plan TEXT NOT NULL,
    currency TEXT NOT NULL,
    credit_limit_nano INTEGER NOT NULL,
    created_by TEXT NOT NULL REFERENCES users (id),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX organizations_created_by_name_folded ON organizations (created_by, name_folded);

-- Who belongs to an organization, and as what.
CREATE TABLE organization_members (
    organization_id TEXT NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    role TEXT NOT NULL CHECK (role IN ('owner', 'admin', 'member')),
    joined_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (organization_id, user_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX organization_members_user_id ON organization_members (user_id);

-- A part of an organization with its own members and API keys; its model settings are defaults.
CREATE TABLE projects (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL REFERENCES organizations (id),
    name TEXT NOT NULL,
    name_folded TEXT NOT NULL,
    description TEXT,
    model TEXT,
    max_tokens INTEGER,
    temperature_ppm INTEGER,
    visibility TEXT NOT NULL CHECK (visibility IN ('private', 'public')),
    created_by TEXT NOT NULL REFERENCES users (id),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX projects_organization_id_name_folded ON projects (organization_id, name_folded);
CREATE INDEX projects_organization_id_created_at ON projects (organization_id, created_at DESC, id);

-- Who works in a project, and as what.
CREATE TABLE project_members (
    project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    role TEXT NOT NULL CHECK (role IN ('owner', 'admin', 'developer', 'viewer')),
    added_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, user_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX project_members_user_id ON project_members (user_id);

-- What a program calls with, and its restrictions: `permissions` is separated by spaces, `allowed_ips` and
-- `models` are JSON arrays, `rate_limit` is requests a minute. Its secrets rotate beside it.
CREATE TABLE api_keys (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL REFERENCES organizations (id),
    project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    name_folded TEXT NOT NULL,
    description TEXT,
    permissions TEXT NOT NULL,
    allowed_ips TEXT,
    rate_limit INTEGER,
    max_tokens INTEGER,
    models TEXT,
    created_by TEXT NOT NULL REFERENCES users (id),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    last_used_at INTEGER,
    last_used_ip TEXT
) STRICT;
CREATE UNIQUE INDEX api_keys_project_id_name_folded ON api_keys (project_id, name_folded);
CREATE INDEX api_keys_project_id_created_at ON api_keys (project_id, created_at DESC, id);

-- A secret of an API key, by its hash: the current one, and after a rotation the ones that still work until `ends_at`.
CREATE TABLE api_key_secrets (
    secret_hash BLOB NOT NULL PRIMARY KEY,
    api_key_id TEXT NOT NULL REFERENCES api_keys (id) ON DELETE CASCADE,
    sealed_secret BLOB,
    created_at INTEGER NOT NULL,
    ends_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX api_key_secrets_api_key_id ON api_key_secrets (api_key_id);

-- What was used, once an event: the primary key is the gate that makes a repeated report count once, the payload's
-- hash tells a repetition from a contradiction. Append-only (triggers below); it outlives projects and keys, so it
-- has no foreign keys to them.
CREATE TABLE usage_events (
    organization_id TEXT NOT NULL,
    source TEXT NOT NULL,
    event_id TEXT NOT NULL,
    payload_hash BLOB NOT NULL,
    project_id TEXT NOT NULL,
    api_key_id TEXT NOT NULL,
    model TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('chat', 'embeddings')),
    occurred_at INTEGER NOT NULL,
    received_at INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    price_version INTEGER NOT NULL,
    amount_pico INTEGER NOT NULL,
    PRIMARY KEY (organization_id, source, event_id)
) STRICT, WITHOUT ROWID;

-- The events added up by UTC day (days since 1970-01-01), for reports. Outlives projects and keys too.
CREATE TABLE usage_daily (
    organization_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    api_key_id TEXT NOT NULL,
    model TEXT NOT NULL,
    price_version INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('chat', 'embeddings')),
    day INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    amount_pico INTEGER NOT NULL,
    PRIMARY KEY (organization_id, project_id, day, api_key_id, model, price_version, kind)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_daily_api_key_id_day ON usage_daily (api_key_id, day);
CREATE INDEX usage_daily_organization_day ON usage_daily (organization_id, day);

-- What was recorded about usage and money stays as it was recorded.
CREATE TRIGGER usage_events_no_update BEFORE UPDATE ON usage_events
BEGIN
    SELECT RAISE(ABORT, 'usage_events is append-only');
END;
CREATE TRIGGER usage_events_no_delete BEFORE DELETE ON usage_events
BEGIN
    SELECT RAISE(ABORT, 'usage_events is append-only');
END;
