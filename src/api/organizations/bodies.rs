//! What creating and changing an organization take.

use crate::input::types::{DefaultRole, DescriptionText, Name};
use crate::input::{Fields, Patch, Record};
use crate::roles::OrganizationRole;

/// A new organization.
#[derive(Debug)]
pub struct CreateOrganization {
    pub(super) name: Name,
    pub(super) description: Option<DescriptionText>,
    pub(super) settings: CreateSettings,
}

impl Record for CreateOrganization {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let name = fields.required("name");
        let description = fields.optional("description");
        let settings = fields.object("settings");
        Some(Self { name: name?, description: description?, settings: settings? })
    }
}

#[derive(Debug)]
pub(super) struct CreateSettings {
    pub(super) default_role: OrganizationRole,
    pub(super) allow_public_projects: bool,
}

impl Record for CreateSettings {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let default_role = fields.or("default_role", DefaultRole(OrganizationRole::Member));
        let allow_public_projects = fields.or("allow_public_projects", false);
        Some(Self { default_role: default_role?.0, allow_public_projects: allow_public_projects? })
    }
}

/// New values for an organization; what is left out stays.
#[derive(Debug)]
pub struct UpdateOrganization {
    pub(super) name: Option<Name>,
    pub(super) description: Patch<DescriptionText>,
    pub(super) settings: UpdateSettings,
}

impl Record for UpdateOrganization {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let name = fields.change("name");
        let description = fields.patch("description");
        let settings = fields.change_object("settings");
        Some(Self { name: name?, description: description?, settings: settings? })
    }
}

#[derive(Debug)]
pub(super) struct UpdateSettings {
    pub(super) default_role: Option<DefaultRole>,
    pub(super) allow_public_projects: Option<bool>,
}

impl Record for UpdateSettings {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let default_role = fields.change("default_role");
        let allow_public_projects = fields.change("allow_public_projects");
        Some(Self { default_role: default_role?, allow_public_projects: allow_public_projects? })
    }
}
