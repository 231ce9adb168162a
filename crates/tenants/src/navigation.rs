//! What a person can open from a page: their organizations, and the organization and the project that the page
//! is about.

use crate::access::CallerScope;
use crate::roles::{OrganizationAction, OrganizationRole, ProjectRole, effective_project_role};
use crate::store;
use db::Page;
use kernel::error::Error;
use kernel::ids::{OrganizationId, ProjectId, UserId};

use crate::Tenants;
use crate::store::organization_members as members;
use crate::store::organizations::{Filter, ListedOrganization};
use crate::store::standings::{self, ProjectAndOrganization};

/// The most organizations in a [`Navigation`]: more don't fit into a menu.
pub const MAX_ORGANIZATIONS: i64 = 20;

/// What a person can open from a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Navigation {
    /// The person's newest organizations, at most [`MAX_ORGANIZATIONS`].
    pub organizations: Vec<Organization>,
    /// The organization that the page is about, if the person has a role in it.
    pub organization: Option<Organization>,
    /// The project that the page is about, if the person has a role in it.
    pub project: Option<Project>,
}

/// An organization with the person's role.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Organization {
    pub id: OrganizationId,
    pub name: String,
    pub role: OrganizationRole,
}

/// A project with the person's effective role.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Project {
    pub id: ProjectId,
    pub name: String,
    pub role: ProjectRole,
}

/// Returns what the caller can open from a page about this organization and project.
///
/// # Errors
/// The database fails.
pub async fn read(
    tenants: &Tenants,
    scope: &CallerScope,
    organization_id: Option<OrganizationId>,
    project_id: Option<ProjectId>,
) -> Result<Navigation, Error> {
    let user_id = scope.user_id();
    let filter =
        Filter { user_id, only: scope.only_organization(), search_folded: String::new(), role: None };
    let mut tx = tenants.db().read().await?;
    let page = Page { page: 1, page_size: MAX_ORGANIZATIONS };
    let organizations: Vec<_> = store::organizations::list(&mut tx, &filter, page)
        .await?
        .into_iter()
        .map(|ListedOrganization { id, name, role, .. }| Organization { id, name, role })
        .collect();
    let organization = match organization_id {
        Some(id) => match organizations.iter().find(|organization| organization.id == id) {
            Some(found) => Some(found.clone()),
            None => organization(&mut tx, id, user_id).await?,
        },
        None => None,
    };
    let project = match (organization_id, project_id) {
        (Some(organization_id), Some(id)) => project(&mut tx, organization_id, id, user_id).await?,
        _ => None,
    };
    Ok(Navigation { organizations, organization, project })
}

/// The most owners whom [`owners`] returns.
const MAX_OWNERS: i64 = 3;

/// Returns the names of owners of an organization, whom a person can ask for help: at most 3, the newest first.
/// Empty for somebody who may not see its members.
///
/// # Errors
/// The database fails.
pub async fn owners(
    tenants: &Tenants,
    scope: &CallerScope,
    organization_id: OrganizationId,
) -> Result<Vec<String>, Error> {
    let mut tx = tenants.db().read().await?;
    let role = organization(&mut tx, organization_id, scope.user_id()).await?.map(|found| found.role);
    if !role.is_some_and(|role| role.allows(OrganizationAction::ViewMembers)) {
        return Ok(Vec::new());
    }
    let role = Some(OrganizationRole::Owner);
    let filter = members::Filter { group: organization_id, search_folded: String::new(), role };
    let page = Page { page: 1, page_size: MAX_OWNERS };
    let (_, owners) = members::list(&mut tx, &filter, page).await?;
    Ok(owners.into_iter().map(|owner| owner.username).collect())
}

async fn organization(
    tx: &mut db::Tx,
    id: OrganizationId,
    user_id: UserId,
) -> Result<Option<Organization>, Error> {
    let found = standings::in_organization(tx, id, user_id).await?;
    Ok(found.and_then(|found| {
        Some(Organization { id, name: found.organization.organization.name, role: found.role? })
    }))
}

async fn project(
    tx: &mut db::Tx,
    organization_id: OrganizationId,
    id: ProjectId,
    user_id: UserId,
) -> Result<Option<Project>, Error> {
    let standing =
        standings::in_project::<ProjectAndOrganization>(tx, organization_id, Some(id), user_id, ()).await?;
    let found = standing.and_then(|standing| {
        let project = standing.project?;
        let role =
            effective_project_role(standing.organization_role, project.role, project.open_to_organization)?;
        Some(Project { id, name: standing.found?.detail.project.name, role })
    });
    Ok(found)
}
