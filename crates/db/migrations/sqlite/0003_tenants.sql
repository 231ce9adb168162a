-- Tenants: invitations, counts kept beside what they count, what is left of deleted keys, and the feed of changes.

-- Counts, so that showing one costs nothing however large it is. Triggers keep them: no way of adding or removing a row,
-- a cascade included, can forget them.
ALTER TABLE organizations ADD COLUMN members_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE organizations ADD COLUMN projects_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE organizations ADD COLUMN public_projects_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE projects ADD COLUMN members_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE projects ADD COLUMN api_keys_count INTEGER NOT NULL DEFAULT 0;
UPDATE organizations SET
    members_count = (SELECT COUNT(*) FROM organization_members m WHERE m.organization_id = organizations.id),
    projects_count = (SELECT COUNT(*) FROM projects p WHERE p.organization_id = organizations.id),
    public_projects_count = (SELECT COUNT(*) FROM projects p
                             WHERE p.organization_id = organizations.id AND p.visibility = 'public');
UPDATE projects SET
    members_count = (SELECT COUNT(*) FROM project_members m WHERE m.project_id = projects.id),
    api_keys_count = (SELECT COUNT(*) FROM api_keys k WHERE k.project_id = projects.id);
CREATE TRIGGER organization_members_count_more AFTER INSERT ON organization_members
BEGIN
    UPDATE organizations SET members_count = members_count + 1 WHERE id = NEW.organization_id;
END;
CREATE TRIGGER organization_members_count_less AFTER DELETE ON organization_members
BEGIN
    UPDATE organizations SET members_count = members_count - 1 WHERE id = OLD.organization_id;
END;
CREATE TRIGGER projects_count_more AFTER INSERT ON projects
BEGIN
    UPDATE organizations
    SET projects_count = projects_count + 1,
        public_projects_count = public_projects_count + (NEW.visibility = 'public')
    WHERE id = NEW.organization_id;
END;
CREATE TRIGGER projects_count_less AFTER DELETE ON projects
BEGIN
    UPDATE organizations
    SET projects_count = projects_count - 1,
        public_projects_count = public_projects_count - (OLD.visibility = 'public')
    WHERE id = OLD.organization_id;
END;
CREATE TRIGGER projects_count_public AFTER UPDATE OF visibility ON projects
BEGIN
    UPDATE organizations
    SET public_projects_count = public_projects_count + (NEW.visibility = 'public') - (OLD.visibility = 'public')
    WHERE id = NEW.organization_id;
END;
CREATE TRIGGER project_members_count_more AFTER INSERT ON project_members
BEGIN
    UPDATE projects SET members_count = members_count + 1 WHERE id = NEW.project_id;
END;
CREATE TRIGGER project_members_count_less AFTER DELETE ON project_members
BEGIN
    UPDATE projects SET members_count = members_count - 1 WHERE id = OLD.project_id;
END;
CREATE TRIGGER api_keys_count_more AFTER INSERT ON api_keys
BEGIN
    UPDATE projects SET api_keys_count = api_keys_count + 1 WHERE id = NEW.project_id;
END;
CREATE TRIGGER api_keys_count_less AFTER DELETE ON api_keys
BEGIN
    UPDATE projects SET api_keys_count = api_keys_count - 1 WHERE id = OLD.project_id;
END;

-- Lists are newest first, then by id.
CREATE INDEX organization_members_list ON organization_members (organization_id, joined_at DESC, user_id);
CREATE INDEX project_members_list ON project_members (project_id, added_at DESC, user_id);
-- What members of an organization see besides their own projects.
CREATE INDEX projects_public ON projects (organization_id, created_at DESC, id) WHERE visibility = 'public';

-- An organization goes with its keys.
CREATE INDEX api_keys_organization_id ON api_keys (organization_id);

-- Somebody asked into an organization. It is open until `ended_at`: accepted (then `accepted_by` says by whom), withdrawn,
-- or replaced after its time; `expired` is computed from `expires_at`. Of the link's token only the hash is kept.
CREATE TABLE invitations (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    email TEXT NOT NULL,
    email_folded TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('owner', 'admin', 'member')),
    message TEXT,
    invited_by TEXT NOT NULL REFERENCES users (id),
    token_hash BLOB,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    ended_at INTEGER,
    accepted_by TEXT REFERENCES users (id)
) STRICT;
CREATE UNIQUE INDEX invitations_open ON invitations (organization_id, email_folded) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX invitations_token_hash ON invitations (token_hash);
CREATE INDEX invitations_email_folded ON invitations (email_folded);
CREATE INDEX invitations_invited_by ON invitations (invited_by);

-- Mail may be about something besides its recipient's account: `details` names it, as JSON, without secrets.
CREATE TABLE outbox_with_details (
    id TEXT NOT NULL PRIMARY KEY,
    template TEXT NOT NULL CHECK (template IN ('verify_email', 'reset_password', 'password_changed', 'invitation', 'added_to_project', 'organization_deleted',
        'project_deleted')),
    email TEXT NOT NULL,
    details TEXT NOT NULL DEFAULT '{}',
    created_at INTEGER NOT NULL,
    next_attempt_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL
) STRICT;
INSERT INTO outbox_with_details (id, template, email, created_at, next_attempt_at, attempts)
    SELECT id, template, email, created_at, next_attempt_at, attempts FROM outbox;
DROP TABLE outbox;
ALTER TABLE outbox_with_details RENAME TO outbox;
CREATE INDEX outbox_next_attempt_at ON outbox (next_attempt_at);

-- What is left of a deleted API key: usage reported late still counts, and reports still name it.
CREATE TABLE former_api_keys (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    name TEXT NOT NULL,
    name_folded TEXT NOT NULL
) STRICT;
CREATE TRIGGER api_keys_leave_a_name AFTER DELETE ON api_keys
BEGIN
    INSERT INTO former_api_keys (id, organization_id, project_id, name, name_folded)
        VALUES (OLD.id, OLD.organization_id, OLD.project_id, OLD.name, OLD.name_folded);
END;

-- The feed of changes: what replicas hold in memory and must drop. A writer takes the next position from the one row of
-- `change_position` and keeps that row locked to its commit, so that positions become visible in their order.
CREATE TABLE changes (
    position INTEGER NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('session', 'user', 'api_key', 'project', 'organization', 'catalog')),
    subject TEXT NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT;
CREATE INDEX changes_changed_at ON changes (changed_at);
CREATE TABLE change_position (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    position INTEGER NOT NULL
) STRICT;
INSERT INTO change_position (id, position) VALUES (1, 0);
