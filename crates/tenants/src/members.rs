//! Members of an organization.

use crate::access::{LockedMember, MemberScope, OrgScope};
use crate::roles::OrganizationRole;
use crate::rules::membership::{self, Remover, RoleChange};
use crate::store;
use events::data::MemberRemoved;
use kernel::error::Error;
use kernel::futures::BoxFuture;
use kernel::ids::OrganizationId;

use crate::store::organization_members::Filter;
use trail::{Action, Event};

use super::{ListPage, Search, Tenants};

pub use crate::store::members::{Group, Member};
pub use crate::store::organization_members::MemberProject;

/// Returns one page of the members, newest first.
///
/// # Errors
/// The database fails.
pub fn list<'a>(
    tenants: &'a Tenants,
    scope: &'a OrgScope,
    search: Search<OrganizationRole>,
) -> BoxFuture<'a, Result<ListPage<Member<OrganizationId>>, Error>> {
    Box::pin(async move {
        let Search { page, folded, role } = search;
        let filter = Filter { group: scope.organization_id(), search_folded: folded, role };
        let mut tx = tenants.db().read().await?;
        let (total, rows) = store::organization_members::list(&mut tx, &filter, page).await?;
        Ok(ListPage { rows, total })
    })
}

/// The maximum number of projects in a [`MemberDetail`].
const MAX_PROJECTS: usize = 100;

/// A member, with the data about their membership.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberDetail {
    /// The caller's role.
    pub caller: OrganizationRole,
    pub member: Member<OrganizationId>,
    /// `true` if the organization has an owner other than the member.
    pub has_other_owner: bool,
    /// The projects of the organization that the member belongs to, at most 100, sorted by name.
    pub projects: Vec<MemberProject>,
    /// `true` if the member belongs to more projects.
    pub has_more_projects: bool,
}

/// Returns the member with their projects.
///
/// # Errors
/// 404 if the member has left in the meantime.
pub async fn read(tenants: &Tenants, scope: &MemberScope) -> Result<MemberDetail, Error> {
    let (organization_id, member_id) = (scope.organization_id(), scope.member_id());
    let limit = i64::try_from(MAX_PROJECTS).unwrap_or(i64::MAX).saturating_add(1);
    let mut tx = tenants.db().read().await?;
    let LockedMember { grantor, row: member, has_other_owner } = scope.find(&mut tx).await?;
    let mut projects =
        store::organization_members::projects(&mut tx, organization_id, member_id, limit).await?;
    let has_more_projects = projects.len() > MAX_PROJECTS;
    projects.truncate(MAX_PROJECTS);
    Ok(MemberDetail { caller: grantor.role, member, has_other_owner, projects, has_more_projects })
}

/// Changes the member's role, and returns the changed member. Invitations that they have sent end if the new
/// role can't grant the invited role. A change to the same role doesn't change `updated_at`.
///
/// # Errors
/// 404 and 403 as from the scope; 412 if the member doesn't have the expected role; 403 for a role that the
/// caller can't grant or revoke; `reauthentication_required` if a user adds or removes an owner without
/// having recently confirmed their identity; 409 for the last owner.
pub fn update<'a>(
    tenants: &'a Tenants,
    scope: &'a MemberScope,
    change: RoleChange<OrganizationRole>,
) -> BoxFuture<'a, Result<Member<OrganizationId>, Error>> {
    Box::pin(async move {
        let now = tenants.clock.now();
        let (organization_id, member_id) = (scope.organization_id(), scope.member_id());
        let mut tx = tenants.db().write().await?;
        let (mut held, LockedMember { grantor, row: mut member, has_other_owner }) =
            scope.lock_and_recheck(&mut tx).await?;
        change.check_expected(member.role)?;
        if let Some(role) = change.role {
            membership::check_change(grantor, member.role, role, has_other_owner)?;
            if role != member.role {
                if [role, member.role].contains(&OrganizationRole::Owner) {
                    scope.caller().require_proof()?;
                }
                for role_beyond in membership::roles_beyond(role) {
                    store::invitations::end_sent(&mut held, organization_id, member_id, role_beyond, now)
                        .await?;
                }
                let event = event(scope, Action::MemberRoleChanged);
                trail::record(&mut held, scope.trail(), &event, now, &tenants.random).await?;
                store::organization_members::set_role(&mut held, organization_id, member_id, role, now)
                    .await?;
                (member.role, member.updated_at) = (role, now);
            }
        }
        tx.commit().await?;
        Ok(member)
    })
}

/// Removes the member, and returns the kind of actor. The member's memberships in the organization's projects
/// are removed too, and the open invitations that they have sent end. API keys that they created can still
/// make model calls, but can no longer manage anything, because their creator has no role.
///
/// # Errors
/// 404 and 403 as from the scope; 403 for a role that the caller can't revoke; `reauthentication_required` if
/// a user removes another owner without having recently confirmed their identity; 409 for the last owner.
pub fn delete<'a>(
    tenants: &'a Tenants,
    scope: &'a MemberScope,
) -> BoxFuture<'a, Result<Remover<OrganizationRole>, Error>> {
    Box::pin(async move {
        let now = tenants.clock.now();
        let (organization_id, member_id) = (scope.organization_id(), scope.member_id());
        let mut tx = tenants.db().write().await?;
        let (mut held, LockedMember { grantor, row: member, has_other_owner }) =
            scope.lock_and_recheck(&mut tx).await?;
        let remover = if scope.is_leaving() { Remover::Oneself } else { Remover::Other(grantor.role) };
        membership::check_removal(remover, member.role, has_other_owner)?;
        if member.role == OrganizationRole::Owner && !scope.is_leaving() {
            scope.caller().require_proof()?;
        }
        store::invitations::end_with_member(&mut held, organization_id, &member, now).await?;
        let event = event(scope, Action::MemberRemoved);
        trail::record(&mut held, scope.trail(), &event, now, &tenants.random).await?;
        events::emit(&mut held, &MemberRemoved { organization_id, user_id: member_id }, now, &tenants.random)
            .await?;
        store::organization_members::remove(&mut held, organization_id, member_id, now).await?;
        tx.commit().await?;
        Ok(remover)
    })
}

fn event(scope: &MemberScope, action: Action) -> Event {
    Event { action, target: scope.member_id().to_string(), organization_id: Some(scope.organization_id()) }
}
