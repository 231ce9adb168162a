-- An organization's invitations, the newest first.
CREATE INDEX invitations_list ON invitations (organization_id, created_at DESC, id);

-- An organization's audit log by actor, action or target, however long it is. Entries without an organization, such as logins, aren't
-- in these indexes.
CREATE INDEX audit_log_organization_id_actor_id ON audit_log (organization_id, actor, id) WHERE organization_id IS NOT NULL;
CREATE INDEX audit_log_organization_id_action_id ON audit_log (organization_id, action, id) WHERE organization_id IS NOT NULL;
CREATE INDEX audit_log_organization_id_target_id ON audit_log (organization_id, target, id) WHERE organization_id IS NOT NULL;
