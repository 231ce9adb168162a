-- When an account's password was last replaced: links that were asked for before that set no other one.
ALTER TABLE users ADD COLUMN password_changed_at BIGINT;
-- The address was verified by the token of its link alone, and nobody has logged in since: invitations wait for that login.
ALTER TABLE users ADD COLUMN awaits_login BIGINT NOT NULL DEFAULT 0 CHECK (awaits_login IN (0, 1));
-- Accounts that were never used are found by their age.
CREATE INDEX users_unverified ON users (created_at, id) WHERE email_verified_at IS NULL;

-- A person's live sessions, however many have ended.
CREATE INDEX sessions_live ON sessions (user_id, created_at) WHERE ended_at IS NULL;

-- What a person has made: found when their account passes to the owner of its address, and when it is removed.
CREATE INDEX projects_created_by ON projects (created_by);
CREATE INDEX api_keys_created_by ON api_keys (created_by);
CREATE INDEX invitations_accepted_by ON invitations (accepted_by);

-- The audit trail is cleaned by age. Whatever asks for it, nothing goes that is younger than 90 days, counted from the newest entry.
CREATE INDEX audit_log_happened_at ON audit_log (happened_at);
CREATE FUNCTION refuse_early_delete_of_audit_log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.happened_at > (SELECT MAX(happened_at) FROM audit_log) - 7776000000 THEN
        RAISE EXCEPTION '% is append-only for 90 days', TG_TABLE_NAME;
    END IF;
    RETURN OLD;
END;
$$;
DROP TRIGGER audit_log_append_only ON audit_log;
CREATE TRIGGER audit_log_no_update BEFORE UPDATE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER audit_log_no_early_delete BEFORE DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION refuse_early_delete_of_audit_log();
