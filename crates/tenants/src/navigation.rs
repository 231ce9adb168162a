//! The contents of a page's navigation: the user, their organizations, and the organization and the project
//! that the page is about.

use crate::access::CallerScope;
use crate::roles::{OrganizationAction, OrganizationRole};
use crate::store;
use db::Page;
use kernel::error::Error;
use kernel::ids::{OrganizationId, ProjectId, UserId};

use crate::Tenants;
use crate::store::navigation::{Entry, Place};
use crate::store::organization_members as members;
use crate::store::standings;

pub use crate::store::navigation::{Organization, Person, Project};

/// The maximum number of organizations in a [`Navigation`], so that they fit in a menu.
pub const MAX_ORGANIZATIONS: i64 = 20;

/// The contents of a page's navigation.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Navigation {
    /// The user; `None` if the account doesn't exist.
    pub person: Option<Person>,
    /// The user's newest organizations, at most [`MAX_ORGANIZATIONS`].
    pub organizations: Vec<Organization>,
    /// The organization that the page is about, if the user has a role in it.
    pub organization: Option<Organization>,
    /// The project that the page is about, if the user has a role in it.
    pub project: Option<Project>,
}

/// Returns the navigation of a page about this organization and project, for the caller. It is read with one
/// statement.
///
/// # Errors
/// The database fails.
pub async fn read(
    tenants: &Tenants,
    scope: &CallerScope,
    organization_id: Option<OrganizationId>,
    project_id: Option<ProjectId>,
) -> Result<Navigation, Error> {
    let mut tx = tenants.db().read().await?;
    let (place, only) = (Place { organization_id, project_id }, scope.only_organization());
    let entries = store::navigation::read(&mut tx, scope.user_id(), place, only, MAX_ORGANIZATIONS).await?;
    let mut navigation = Navigation::default();
    for entry in entries {
        match entry {
            Entry::Visit { person, organization, project } => {
                (navigation.person, navigation.organization) = (Some(person), organization);
                navigation.project = project;
            }
            Entry::Listed(organization) => navigation.organizations.push(organization),
        }
    }
    Ok(navigation)
}

/// The maximum number of owners that [`owners`] returns.
const MAX_OWNERS: i64 = 3;

/// Returns the usernames of at most three owners of an organization, whom a user can ask for help,
/// newest first. The list is empty if the caller may not view the organization's members.
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
