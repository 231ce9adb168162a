-- Who takes a role or a membership away asks whether anybody else owns the organization, and ends the invitations that the member
-- has sent: however many members and invitations there are. The second index also finds those that go with their organization.
CREATE INDEX organization_members_owners ON organization_members (organization_id, role) WHERE role = 'owner';
CREATE INDEX invitations_sent ON invitations (organization_id, invited_by);
