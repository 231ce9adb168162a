//! The tables of the actions that each role allows (docs/contract/access.md#roles-of-organizations).
//!
//! The two tables below have the same layout as the tables in the contract. Only the scopes of
//! [`crate::access`] read them; handlers don't check roles.

use serde::Serialize;

use schemars::JsonSchema;
use strum::{EnumString, IntoStaticStr, VariantArray};

/// A user's role in an organization, from the lowest to the highest.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, JsonSchema, EnumString, IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "snake_case")]
pub enum OrganizationRole {
    /// Can view the organization and its public projects.
    Member,
    /// Can manage the organization, but can't delete it or make owners.
    Admin,
    /// Can do everything.
    Owner,
}

db::words!(OrganizationRole);

/// A user's role in a project, from the lowest to the highest.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, JsonSchema, EnumString, IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "snake_case")]
pub enum ProjectRole {
    /// Can view the project and its usage.
    Viewer,
    /// Can view the project and its usage, and call models.
    Developer,
    /// Can manage the project, but can't delete it.
    Admin,
    /// Can do everything.
    Owner,
}

db::words!(ProjectRole);

impl OrganizationRole {
    /// Returns `true` if the table of roles allows this action (docs/contract/access.md).
    pub fn allows(self, action: OrganizationAction) -> bool {
        let [owner, admin, member] = action.row();
        match self {
            Self::Owner => owner,
            Self::Admin => admin,
            Self::Member => member,
        }
    }
}

impl ProjectRole {
    /// Returns `true` if the table of roles allows this action (docs/contract/access.md).
    pub fn allows(self, action: ProjectAction) -> bool {
        let [owner, admin, developer, viewer] = action.row();
        match self {
            Self::Owner => owner,
            Self::Admin => admin,
            Self::Developer => developer,
            Self::Viewer => viewer,
        }
    }
}

const YES: bool = true;
const NO: bool = false;

/// An action on an organization.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, VariantArray)]
pub enum OrganizationAction {
    /// View organization.
    View,
    /// Modify organization.
    Modify,
    /// Delete organization.
    Delete,
    /// Invite members.
    InviteMembers,
    /// Manage members.
    ManageMembers,
    /// View member list.
    ViewMembers,
    /// Manage projects.
    ManageProjects,
    /// View summary, invoices and usage of the whole organization.
    ViewBilling,
    /// Set budgets, the balance alert and the automatic top-up, pay, save a card.
    ManageBilling,
    /// View the audit log of the organization.
    ViewAuditLog,
    /// Create, change and delete webhooks, and have events delivered again.
    ManageWebhooks,
}

impl OrganizationAction {
    /// Every action, in the order of the contract.
    pub const ALL: &[Self] = Self::VARIANTS;

    #[rustfmt::skip]
    const fn row(self) -> [bool; 3] {
        match self {
            //                      owner admin member
            Self::View           => [YES, YES, YES],
            Self::Modify         => [YES, YES, NO ],
            Self::Delete         => [YES, NO,  NO ],
            Self::InviteMembers  => [YES, YES, NO ],
            Self::ManageMembers  => [YES, YES, NO ],
            Self::ViewMembers    => [YES, YES, YES],
            Self::ManageProjects => [YES, YES, NO ],
            // Only owners and admins can see the organization's money
            // (docs/contract/access.md#roles-of-organizations).
            Self::ViewBilling    => [YES, YES, NO ],
            Self::ManageBilling  => [YES, NO,  NO ],
            // Its entries contain users' addresses.
            Self::ViewAuditLog   => [YES, YES, NO ],
            // Webhooks send the organization's data to other servers.
            Self::ManageWebhooks => [YES, NO,  NO ],
        }
    }
}

/// An action on a project.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, VariantArray)]
pub enum ProjectAction {
    /// View project.
    View,
    /// Modify project.
    Modify,
    /// Delete project.
    Delete,
    /// Manage members.
    ManageMembers,
    /// View member list.
    ViewMembers,
    /// Manage API keys.
    ManageApiKeys,
    /// View usage statistics.
    ViewUsage,
    /// Call models on behalf of the project with an access token, without an API key.
    CallModels,
}

impl ProjectAction {
    /// Every action, in the order of the contract.
    pub const ALL: &[Self] = Self::VARIANTS;

    #[rustfmt::skip]
    const fn row(self) -> [bool; 4] {
        match self {
            //                     owner admin devel viewer
            Self::View          => [YES, YES, YES, YES],
            Self::Modify        => [YES, YES, NO,  NO ],
            Self::Delete        => [YES, NO,  NO,  NO ],
            Self::ManageMembers => [YES, YES, NO,  NO ],
            Self::ViewMembers   => [YES, YES, YES, YES],
            Self::ManageApiKeys => [YES, YES, NO,  NO ],
            Self::ViewUsage     => [YES, YES, YES, YES],
            // A call spends the organization's money, so viewers can't call models.
            Self::CallModels    => [YES, YES, YES, NO ],
        }
    }
}

/// The visibility of a project.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, JsonSchema, EnumString, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "snake_case")]
pub enum Visibility {
    /// Visible to its members, and to the organization's owners and admins.
    Private,
    /// Visible to every member of the organization, with the role of viewer.
    Public,
}

db::words!(Visibility);

/// Returns a user's effective role in a project (docs/contract/access.md#effective-roles). This is the
/// highest of these roles: the explicit role in the project; owner, if the user can manage the organization's
/// projects; and viewer, if the user is a member and the project is open to the organization (it is `public`,
/// and public projects are allowed).
pub fn effective_project_role(
    organization_role: Option<OrganizationRole>,
    project_role: Option<ProjectRole>,
    open_to_organization: bool,
) -> Option<ProjectRole> {
    let by_organization = match organization_role {
        Some(role) if role.allows(OrganizationAction::ManageProjects) => Some(ProjectRole::Owner),
        Some(_) if open_to_organization => Some(ProjectRole::Viewer),
        _ => None,
    };
    project_role.max(by_organization)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effective_role_is_the_higher_of_the_two() {
        use OrganizationRole as O;
        use ProjectRole as P;
        let cases = [
            (None, None, true, None),
            (None, Some(P::Viewer), false, Some(P::Viewer)),
            (Some(O::Member), None, false, None),
            (Some(O::Member), None, true, Some(P::Viewer)),
            (Some(O::Member), Some(P::Admin), true, Some(P::Admin)),
            (Some(O::Admin), None, false, Some(P::Owner)),
            (Some(O::Owner), Some(P::Viewer), false, Some(P::Owner)),
        ];
        for (organization, project, open, expected) in cases {
            assert_eq!(effective_project_role(organization, project, open), expected);
        }
    }

    #[test]
    fn role_words_parse() {
        for role in [OrganizationRole::Member, OrganizationRole::Admin, OrganizationRole::Owner] {
            assert_eq!(role.as_str().parse(), Ok(role));
        }
        for role in [ProjectRole::Viewer, ProjectRole::Developer, ProjectRole::Admin, ProjectRole::Owner] {
            assert_eq!(role.as_str().parse(), Ok(role));
        }
        assert!("Owner".parse::<OrganizationRole>().is_err());
    }
}
