//! Operations on members of a project.

use crate::access::{LockedTx, ProjectMemberScope, ProjectScope};
use crate::roles::ProjectRole;
use crate::rules::membership::{Remover, RoleChange};
use crate::rules::project_membership;
use crate::store;
use db::{Tx, Uncommitted};
use events::data::MemberAdded;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::UserId;
use mail::posting::Draft;

use crate::store::project_members::Filter;
use accounts::store::users::User;
use mail::store::mail_counters::Sender;
use mail::store::outbox::{About, Template};
use trail::{Action, Event};

use super::projects::about;
use super::{ListPage, Search, Tenants};

pub use crate::store::organization_members::Candidate;
pub use crate::store::project_members::Member;

/// A user to add to the project.
#[derive(Clone, Copy, Debug)]
pub struct New {
    /// The user's id; `None` if the given text isn't a valid user id.
    pub user_id: Option<UserId>,
    pub role: ProjectRole,
}

/// Adds a user to the project, and returns the new member. A user who doesn't belong to the organization yet
/// is added to it too, if the caller may manage its members. The user is notified by e-mail unless they added
/// themselves.
///
/// # Errors
/// 404 and 403 as from the scope; 404 if the user doesn't exist; 403 for a role that the caller can't grant;
/// 409 if the user is already a member.
pub fn create<'a>(
    tenants: &'a Tenants,
    scope: &'a ProjectScope,
    new: New,
) -> BoxFuture<'a, Result<Uncommitted<Member>, Error>> {
    Box::pin(async move {
        let (project_id, role, now) = (scope.project_id(), new.role, tenants.clock.now());
        let mut tx = tenants.db().write().await?;
        let (mut held, caller) = scope.lock_and_recheck(&mut tx).await?;
        let user = match new.user_id {
            Some(user_id) => accounts::store::users::by_id(&mut held, user_id).await?,
            None => None,
        };
        let user = user.ok_or(Error::new(Code::UserNotFound).param("user_id"))?;
        let found_role =
            store::organization_members::role(&mut held, scope.organization_id(), user.id).await?;
        let is_newcomer = found_role.flatten().is_none();
        project_membership::check_addition(caller.grantor, caller.organization_role, role, is_newcomer)?;
        if is_newcomer {
            add_to_organization(tenants, &mut held, scope, &user, now).await?;
        }
        if !store::project_members::add(&mut held, project_id, user.id, role, now).await? {
            return Err(Error::new(Code::AlreadyMember).param("user_id"));
        }
        record(tenants, &mut held, scope, Action::ProjectMemberAdded, target(scope, user.id), now).await?;
        if user.id != scope.user_id() {
            let by = accounts::store::users::by_id(&mut held, scope.user_id())
                .await?
                .ok_or(Code::InsufficientRole)?;
            let about = About { role: Some(role.as_str().to_owned()), ..about(&caller.found, by.username) };
            let sender = Sender::person(scope.trail(), scope.user_id());
            let draft = Draft { template: Template::AddedToProject, about };
            tenants.outbox.post(&mut held, &sender, &draft, &user.email, now).await?;
        }
        let User { id: user_id, email, email_folded, username, .. } = user;
        let member = Member { user_id, email, email_folded, username, role, joined_at: now, updated_at: now };
        Ok(tenants.notify_after(Uncommitted::new(tx, member)))
    })
}

/// Adds a user to the organization, with the organization's default role.
async fn add_to_organization(
    tenants: &Tenants,
    tx: &mut LockedTx<'_>,
    scope: &ProjectScope,
    user: &User,
    now: Time,
) -> Result<(), Error> {
    let organization_id = scope.organization_id();
    let organization =
        store::organizations::detail(tx, organization_id).await?.ok_or(Code::OrganizationNotFound)?;
    let role = organization.organization.default_role;
    store::organization_members::insert(tx, organization_id, user.id, role, now).await?;
    let added = MemberAdded { organization_id, user_id: user.id, role: role.as_str() };
    events::emit(tx, &added, now, &tenants.random).await?;
    record(tenants, tx, scope, Action::MemberAdded, user.id.to_string(), now).await
}

/// Returns one page of the project's explicit members, newest first. Members of the organization who have
/// access through their organization role aren't listed.
///
/// # Errors
/// The database fails.
pub fn list<'a>(
    tenants: &'a Tenants,
    scope: &'a ProjectScope,
    search: Search<ProjectRole>,
) -> BoxFuture<'a, Result<ListPage<Member>, Error>> {
    Box::pin(async move {
        let Search { page, folded, role } = search;
        let filter = Filter { group: scope.project_id(), search_folded: folded, role };
        let mut tx = tenants.db().read().await?;
        let (total, rows) = store::project_members::list(&mut tx, &filter, page).await?;
        Ok(ListPage { rows, total })
    })
}

/// The maximum number of users in a list of [`candidates`].
const MAX_CANDIDATES: i64 = 20;

/// Returns the members of the organization who can be added to the project, at most 20, newest first. Their
/// folded address or username contains `search_folded`.
///
/// # Errors
/// The database fails.
pub async fn candidates(
    tenants: &Tenants,
    scope: &ProjectScope,
    search_folded: &str,
) -> Result<Vec<Candidate>, Error> {
    let place = (scope.organization_id(), scope.project_id());
    let mut tx = tenants.db().read().await?;
    Ok(store::organization_members::candidates(&mut tx, place, search_folded, MAX_CANDIDATES).await?)
}

/// A member, and the caller's effective role.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberDetail {
    pub caller: ProjectRole,
    pub member: Member,
}

/// Returns the member.
///
/// # Errors
/// 404 if the member has left in the meantime.
pub async fn read(tenants: &Tenants, scope: &ProjectMemberScope) -> Result<MemberDetail, Error> {
    let mut tx = tenants.db().read().await?;
    let (grantor, member) = scope.find(&mut tx).await?;
    Ok(MemberDetail { caller: grantor.role, member })
}

/// Changes the member's role, and returns the changed member. A change to the same role doesn't change
/// `updated_at`.
///
/// # Errors
/// 404 and 403 as from the scope; 412 if the member doesn't have the expected role; 403 for a role that the
/// caller can't grant or revoke.
pub fn update<'a>(
    tenants: &'a Tenants,
    scope: &'a ProjectMemberScope,
    change: RoleChange<ProjectRole>,
) -> BoxFuture<'a, Result<Member, Error>> {
    Box::pin(async move {
        let now = tenants.clock.now();
        let (project_id, member_id) = (scope.project_id(), scope.member_id());
        let mut tx = tenants.db().write().await?;
        let (mut held, caller, mut member) = scope.lock_and_recheck(&mut tx).await?;
        change.check_expected(member.role)?;
        if let Some(role) = change.role {
            project_membership::check_change(caller, member.role, role)?;
            if role != member.role {
                let (project, action) = (scope.project(), Action::ProjectMemberRoleChanged);
                record(tenants, &mut held, project, action, target(project, member_id), now).await?;
                store::project_members::set_role(&mut held, project_id, member_id, role, now).await?;
                (member.role, member.updated_at) = (role, now);
            }
        }
        tx.commit().await?;
        Ok(member)
    })
}

/// Removes the member, and returns the kind of actor. API keys that the member created remain, with the
/// permissions that the member still has.
///
/// # Errors
/// 404 and 403 as from the scope; 403 for a role that the caller can't revoke.
pub fn delete<'a>(
    tenants: &'a Tenants,
    scope: &'a ProjectMemberScope,
) -> BoxFuture<'a, Result<Remover<ProjectRole>, Error>> {
    Box::pin(async move {
        let now = tenants.clock.now();
        let (project_id, member_id) = (scope.project_id(), scope.member_id());
        let mut tx = tenants.db().write().await?;
        let (mut held, caller, member) = scope.lock_and_recheck(&mut tx).await?;
        let remover = if scope.is_leaving() { Remover::Oneself } else { Remover::Other(caller.role) };
        project_membership::check_removal(remover, member.role)?;
        let (project, action) = (scope.project(), Action::ProjectMemberRemoved);
        record(tenants, &mut held, project, action, target(project, member_id), now).await?;
        store::project_members::remove(&mut held, project_id, member_id, now).await?;
        tx.commit().await?;
        Ok(remover)
    })
}

async fn record(
    tenants: &Tenants,
    tx: &mut Tx,
    scope: &ProjectScope,
    action: Action,
    target: String,
    now: Time,
) -> Result<(), Error> {
    let event = Event { action, target, organization_id: Some(scope.organization_id()) };
    Ok(trail::record(tx, scope.trail(), &event, now, &tenants.random).await?)
}

/// Returns the target of an audit entry. A membership has no id, so the target consists of the project's id
/// and the user's id.
fn target(scope: &ProjectScope, user_id: UserId) -> String {
    format!("{}/{user_id}", scope.project_id())
}
