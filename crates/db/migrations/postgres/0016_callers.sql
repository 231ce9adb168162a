-- The column `api_key_id` of usage_events, usage_daily and reservations holds the caller: a key (`key_…`), or the person who made
-- the call with an access token (`user_…`).

-- What a day comes to is `amount_whole` of the currency and `amount_pico` of its 1e-12. The first is 0 as long as the second has
-- room, so that rows are read rightly without it unless a day comes to millions of the currency.
ALTER TABLE usage_daily ADD COLUMN amount_whole BIGINT NOT NULL DEFAULT 0;

-- How a gateway calls the question that a reservation answers: asked again, it is given the same one.
ALTER TABLE reservations ADD COLUMN request_id TEXT COLLATE "C";
CREATE UNIQUE INDEX reservations_organization_id_request_id ON reservations (organization_id, request_id)
    WHERE request_id IS NOT NULL;

-- What is left of a deleted project: usage of people that is reported late still counts.
CREATE TABLE former_projects (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    organization_id TEXT COLLATE "C" NOT NULL
);
INSERT INTO former_projects (id, organization_id)
    SELECT DISTINCT project_id, organization_id FROM former_api_keys WHERE project_id NOT IN (SELECT id FROM projects);
CREATE FUNCTION leave_project_id() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO former_projects (id, organization_id) VALUES (OLD.id, OLD.organization_id)
        ON CONFLICT (id) DO NOTHING;
    RETURN NULL;
END;
$$;
CREATE TRIGGER projects_leave_an_id AFTER DELETE ON projects
    FOR EACH ROW EXECUTE FUNCTION leave_project_id();
