-- Tenants: invitations, counts kept beside what they count, what is left of deleted keys, and the feed of changes.

-- Counts, so that showing one costs nothing however large it is. Triggers keep them: no way of adding or removing a row,
-- a cascade included, can forget them.
ALTER TABLE organizations ADD COLUMN members_count BIGINT NOT NULL DEFAULT 0;
ALTER TABLE organizations ADD COLUMN projects_count BIGINT NOT NULL DEFAULT 0;
ALTER TABLE organizations ADD COLUMN public_projects_count BIGINT NOT NULL DEFAULT 0;
ALTER TABLE projects ADD COLUMN members_count BIGINT NOT NULL DEFAULT 0;
ALTER TABLE projects ADD COLUMN api_keys_count BIGINT NOT NULL DEFAULT 0;
UPDATE organizations SET
    members_count = (SELECT COUNT(*) FROM organization_members m WHERE m.organization_id = organizations.id),
    projects_count = (SELECT COUNT(*) FROM projects p WHERE p.organization_id = organizations.id),
    public_projects_count = (SELECT COUNT(*) FROM projects p
                             WHERE p.organization_id = organizations.id AND p.visibility = 'public');
UPDATE projects SET
    members_count = (SELECT COUNT(*) FROM project_members m WHERE m.project_id = projects.id),
    api_keys_count = (SELECT COUNT(*) FROM api_keys k WHERE k.project_id = projects.id);
CREATE FUNCTION count_organization_members() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        UPDATE organizations SET members_count = members_count + 1 WHERE id = NEW.organization_id;
    ELSE
        UPDATE organizations SET members_count = members_count - 1 WHERE id = OLD.organization_id;
    END IF;
    RETURN NULL;
END;
$$;
CREATE TRIGGER organization_members_counted AFTER INSERT OR DELETE ON organization_members
    FOR EACH ROW EXECUTE FUNCTION count_organization_members();
CREATE FUNCTION count_projects() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        UPDATE organizations
        SET projects_count = projects_count + 1,
            public_projects_count = public_projects_count + (NEW.visibility = 'public')::int
        WHERE id = NEW.organization_id;
    ELSIF TG_OP = 'DELETE' THEN
        UPDATE organizations
        SET projects_count = projects_count - 1,
            public_projects_count = public_projects_count - (OLD.visibility = 'public')::int
        WHERE id = OLD.organization_id;
    ELSIF NEW.visibility <> OLD.visibility THEN
        UPDATE organizations
        SET public_projects_count = public_projects_count + (NEW.visibility = 'public')::int - (OLD.visibility = 'public')::int
        WHERE id = NEW.organization_id;
    END IF;
    RETURN NULL;
END;
$$;
CREATE TRIGGER projects_counted AFTER INSERT OR DELETE OR UPDATE OF visibility ON projects
    FOR EACH ROW EXECUTE FUNCTION count_projects();
CREATE FUNCTION count_project_members() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        UPDATE projects SET members_count = members_count + 1 WHERE id = NEW.project_id;
    ELSE
        UPDATE projects SET members_count = members_count - 1 WHERE id = OLD.project_id;
    END IF;
    RETURN NULL;
END;
$$;
CREATE TRIGGER project_members_counted AFTER INSERT OR DELETE ON project_members
    FOR EACH ROW EXECUTE FUNCTION count_project_members();
CREATE FUNCTION count_api_keys() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        UPDATE projects SET api_keys_count = api_keys_count + 1 WHERE id = NEW.project_id;
    ELSE
        UPDATE projects SET api_keys_count = api_keys_count - 1 WHERE id = OLD.project_id;
    END IF;
    RETURN NULL;
END;
$$;
CREATE TRIGGER api_keys_counted AFTER INSERT OR DELETE ON api_keys
    FOR EACH ROW EXECUTE FUNCTION count_api_keys();

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
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    organization_id TEXT COLLATE "C" NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    email TEXT NOT NULL,
    email_folded TEXT COLLATE "C" NOT NULL,
    role TEXT COLLATE "C" NOT NULL CHECK (role IN ('owner', 'admin', 'member')),
    message TEXT,
    invited_by TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    token_hash BYTEA,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    ended_at BIGINT,
    accepted_by TEXT COLLATE "C" REFERENCES users (id)
);
CREATE UNIQUE INDEX invitations_open ON invitations (organization_id, email_folded) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX invitations_token_hash ON invitations (token_hash);
CREATE INDEX invitations_email_folded ON invitations (email_folded);
CREATE INDEX invitations_invited_by ON invitations (invited_by);

-- Mail may be about something besides its recipient's account: `details` names it, as JSON, without secrets.
ALTER TABLE outbox ADD COLUMN details TEXT NOT NULL DEFAULT '{}';
ALTER TABLE outbox DROP CONSTRAINT outbox_template_check;
ALTER TABLE outbox ADD CONSTRAINT outbox_template_check CHECK (template IN ('verify_email', 'reset_password', 'password_changed', 'invitation', 'added_to_project', 'organization_deleted',
        'project_deleted'));

-- What is left of a deleted API key: usage reported late still counts, and reports still name it.
CREATE TABLE former_api_keys (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    organization_id TEXT COLLATE "C" NOT NULL,
    project_id TEXT COLLATE "C" NOT NULL,
    name TEXT NOT NULL,
    name_folded TEXT COLLATE "C" NOT NULL
);
CREATE FUNCTION leave_api_key_name() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO former_api_keys (id, organization_id, project_id, name, name_folded)
        VALUES (OLD.id, OLD.organization_id, OLD.project_id, OLD.name, OLD.name_folded);
    RETURN NULL;
END;
$$;
CREATE TRIGGER api_keys_leave_a_name AFTER DELETE ON api_keys
    FOR EACH ROW EXECUTE FUNCTION leave_api_key_name();

-- The feed of changes: what replicas hold in memory and must drop. A writer takes the next position from the one row of
-- `change_position` and keeps that row locked to its commit, so that positions become visible in their order.
CREATE TABLE changes (
    position BIGINT NOT NULL PRIMARY KEY,
    kind TEXT COLLATE "C" NOT NULL CHECK (kind IN ('session', 'user', 'api_key', 'project', 'organization', 'catalog')),
    subject TEXT COLLATE "C" NOT NULL,
    changed_at BIGINT NOT NULL
);
CREATE INDEX changes_changed_at ON changes (changed_at);
CREATE TABLE change_position (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    position BIGINT NOT NULL
);
INSERT INTO change_position (id, position) VALUES (1, 0);
