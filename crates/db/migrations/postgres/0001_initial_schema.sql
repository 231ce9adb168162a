-- The schema's first version. Times are unix milliseconds, booleans 0 or 1, `_nano` and `_pico` money in 1e-9 and
-- 1e-12 of a currency. Text that is compared or ordered sorts by bytes, as on SQLite.

-- A person's account. The folded columns are what is unique: names differ by more than case.
CREATE TABLE users (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    email TEXT COLLATE "C" NOT NULL,
    email_folded TEXT COLLATE "C" NOT NULL,
    username TEXT COLLATE "C" NOT NULL,
    username_folded TEXT COLLATE "C" NOT NULL,
    full_name TEXT,
    phone TEXT,
    password_hash TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    email_verified_at BIGINT,
    phone_verified_at BIGINT,
    last_login_at BIGINT
);
CREATE UNIQUE INDEX users_email_folded ON users (email_folded);
CREATE UNIQUE INDEX users_username_folded ON users (username_folded);

-- A link that was sent by e-mail; at most one of each purpose a person. Only the token's hash is kept.
CREATE TABLE email_tokens (
    token_hash BYTEA NOT NULL PRIMARY KEY,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    purpose TEXT COLLATE "C" NOT NULL CHECK (purpose IN ('verify_email', 'reset_password')),
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX email_tokens_user_id_purpose ON email_tokens (user_id, purpose);

-- A login: its tokens work until it ends or expires.
CREATE TABLE sessions (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    remember_me BIGINT NOT NULL CHECK (remember_me IN (0, 1)),
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    ended_at BIGINT
);
CREATE INDEX sessions_user_id ON sessions (user_id);

-- A key pair that signs access tokens. The private half is sealed by the master key.
CREATE TABLE signing_keys (
    kid TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    public_key BYTEA NOT NULL,
    sealed_private_key BYTEA NOT NULL,
    created_at BIGINT NOT NULL,
    retired_at BIGINT
);

-- Who owns projects and pays for them.
CREATE TABLE organizations (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL,
    name_folded TEXT COLLATE "C" NOT NULL,
    description TEXT,
    default_role TEXT COLLATE "C" NOT NULL CHECK (default_role IN ('member', 'admin')),
    allow_public_projects BIGINT NOT NULL CHECK (allow_public_projects IN (0, 1)),
    plan TEXT COLLATE "C" NOT NULL,
    currency TEXT COLLATE "C" NOT NULL,
    credit_limit_nano BIGINT NOT NULL,
    created_by TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX organizations_created_by_name_folded ON organizations (created_by, name_folded);

-- Who belongs to an organization, and as what.
CREATE TABLE organization_members (
    organization_id TEXT COLLATE "C" NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    role TEXT COLLATE "C" NOT NULL CHECK (role IN ('owner', 'admin', 'member')),
    joined_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (organization_id, user_id)
);
CREATE INDEX organization_members_user_id ON organization_members (user_id);

-- A part of an organization with its own members and API keys; its model settings are defaults.
CREATE TABLE projects (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    organization_id TEXT COLLATE "C" NOT NULL REFERENCES organizations (id),
    name TEXT COLLATE "C" NOT NULL,
    name_folded TEXT COLLATE "C" NOT NULL,
    description TEXT,
    model TEXT COLLATE "C",
    max_tokens BIGINT,
    temperature_ppm BIGINT,
    visibility TEXT COLLATE "C" NOT NULL CHECK (visibility IN ('private', 'public')),
    created_by TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX projects_organization_id_name_folded ON projects (organization_id, name_folded);
CREATE INDEX projects_organization_id_created_at ON projects (organization_id, created_at DESC, id);

-- Who works in a project, and as what.
CREATE TABLE project_members (
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    role TEXT COLLATE "C" NOT NULL CHECK (role IN ('owner', 'admin', 'developer', 'viewer')),
    added_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (project_id, user_id)
);
CREATE INDEX project_members_user_id ON project_members (user_id);

-- What a program calls with, and its restrictions: `permissions` is separated by spaces, `allowed_ips` and
-- `models` are JSON arrays, `rate_limit` is requests a minute. Its secrets rotate beside it.
CREATE TABLE api_keys (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    organization_id TEXT COLLATE "C" NOT NULL REFERENCES organizations (id),
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    name TEXT COLLATE "C" NOT NULL,
    name_folded TEXT COLLATE "C" NOT NULL,
    description TEXT,
    permissions TEXT NOT NULL,
    allowed_ips TEXT,
    rate_limit BIGINT,
    max_tokens BIGINT,
    models TEXT,
    created_by TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    expires_at BIGINT,
    last_used_at BIGINT,
    last_used_ip TEXT
);
CREATE UNIQUE INDEX api_keys_project_id_name_folded ON api_keys (project_id, name_folded);
CREATE INDEX api_keys_project_id_created_at ON api_keys (project_id, created_at DESC, id);

-- A secret of an API key, by its hash: the current one, and after a rotation the ones that still work until `ends_at`.
CREATE TABLE api_key_secrets (
    secret_hash BYTEA NOT NULL PRIMARY KEY,
    api_key_id TEXT COLLATE "C" NOT NULL REFERENCES api_keys (id) ON DELETE CASCADE,
    sealed_secret BYTEA,
    created_at BIGINT NOT NULL,
    ends_at BIGINT
);
CREATE INDEX api_key_secrets_api_key_id ON api_key_secrets (api_key_id);

-- What was used, once an event: the primary key is the gate that makes a repeated report count once, the payload's
-- hash tells a repetition from a contradiction. Append-only (triggers below); it outlives projects and keys, so it
-- has no foreign keys to them.
CREATE TABLE usage_events (
    organization_id TEXT COLLATE "C" NOT NULL,
    source TEXT COLLATE "C" NOT NULL,
    event_id TEXT COLLATE "C" NOT NULL,
    payload_hash BYTEA NOT NULL,
    project_id TEXT COLLATE "C" NOT NULL,
    api_key_id TEXT COLLATE "C" NOT NULL,
    model TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL CHECK (kind IN ('chat', 'embeddings')),
    occurred_at BIGINT NOT NULL,
    received_at BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    price_version BIGINT NOT NULL,
    amount_pico BIGINT NOT NULL,
    PRIMARY KEY (organization_id, source, event_id)
);

-- The events added up by UTC day (days since 1970-01-01), for reports. Outlives projects and keys too.
CREATE TABLE usage_daily (
    organization_id TEXT COLLATE "C" NOT NULL,
    project_id TEXT COLLATE "C" NOT NULL,
    api_key_id TEXT COLLATE "C" NOT NULL,
    model TEXT COLLATE "C" NOT NULL,
    price_version BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL CHECK (kind IN ('chat', 'embeddings')),
    day BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    amount_pico BIGINT NOT NULL,
    PRIMARY KEY (organization_id, project_id, day, api_key_id, model, price_version, kind)
);
CREATE INDEX usage_daily_api_key_id_day ON usage_daily (api_key_id, day);
CREATE INDEX usage_daily_organization_day ON usage_daily (organization_id, day);

-- What was recorded about usage and money stays as it was recorded.
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME;
END;
$$;
CREATE TRIGGER usage_events_append_only BEFORE UPDATE OR DELETE ON usage_events
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER usage_events_no_truncate BEFORE TRUNCATE ON usage_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
