//! A user's roles in a project.

use crate::roles::{OrganizationRole, ProjectRole, effective_project_role};
use crate::store::standings::{self, StandingWith};
use db::Tx;
use kernel::error::{Code, Error};
use kernel::ids::{OrganizationId, ProjectId, UserId};

/// A user's roles in a project and its organization.
#[derive(Clone, Copy, Debug)]
pub struct Roles {
    /// The role in the organization.
    pub organization_role: Option<OrganizationRole>,
    /// The effective role in the project.
    pub role: Option<ProjectRole>,
}

impl Roles {
    /// Returns `true` if both roles are at least as high as those of the other user.
    pub fn cover(self, other: Self) -> bool {
        self.organization_role >= other.organization_role && self.role >= other.role
    }

    /// Returns the lower role of both users, in the organization and in the project.
    pub(super) fn lower(self, other: Self) -> Self {
        Self {
            organization_role: self.organization_role.min(other.organization_role),
            role: self.role.min(other.role),
        }
    }

    /// Returns the roles and the extra row; 404 if the organization or the project doesn't exist.
    pub(super) fn from_standing<T>(standing: Option<StandingWith<T>>) -> Result<(Self, Option<T>), Error> {
        let standing = standing.ok_or(Code::OrganizationNotFound)?;
        let (organization_role, project) =
            (standing.organization_role, standing.project.ok_or(Code::ProjectNotFound)?);
        let role = effective_project_role(organization_role, project.role, project.open_to_organization);
        Ok((Self { organization_role, role }, standing.found))
    }
}

/// Returns a user's roles in an organization and one of its projects.
///
/// # Errors
/// 404 if the organization or the project doesn't exist.
pub async fn roles(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: Option<ProjectId>,
    user_id: UserId,
) -> Result<Roles, Error> {
    Ok(Roles::from_standing::<()>(
        standings::in_project(tx, organization_id, project_id, user_id, ()).await?,
    )?
    .0)
}
