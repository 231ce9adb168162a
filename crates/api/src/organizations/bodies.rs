//! The bodies that create and change an organization.

use crate::Api;
use input::fields::{Fields, Record};
use input::types::{DescriptionText, Name};
use kernel::patch::Patch;
use tenants::fields::DefaultRole;
use tenants::organizations::{New, Update};
use tenants::roles::OrganizationRole;

/// A new organization.
#[derive(Debug)]
pub struct CreateOrganization {
    name: Name,
    description: Option<DescriptionText>,
    settings: CreateSettings,
}

impl Record<Api> for CreateOrganization {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let name = fields.required("name");
        let description = fields.optional("description");
        let settings = fields.object("settings");
        Some(Self { name: name?, description: description?, settings: settings? })
    }
}

impl CreateOrganization {
    pub(super) fn into_new(self) -> New {
        New {
            name: self.name.into(),
            description: self.description.map(|text| text.0),
            default_role: self.settings.default_role,
            allow_public_projects: self.settings.allow_public_projects,
        }
    }
}

#[derive(Debug)]
struct CreateSettings {
    default_role: OrganizationRole,
    allow_public_projects: bool,
}

impl Record<Api> for CreateSettings {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let default_role = fields.or("default_role", DefaultRole(OrganizationRole::Member));
        let allow_public_projects = fields.or("allow_public_projects", false);
        Some(Self { default_role: default_role?.0, allow_public_projects: allow_public_projects? })
    }
}

/// A merge patch of an organization.
#[derive(Debug)]
pub struct UpdateOrganization {
    name: Option<Name>,
    description: Patch<DescriptionText>,
    settings: UpdateSettings,
}

impl Record<Api> for UpdateOrganization {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let name = fields.change("name");
        let description = fields.patch("description");
        let settings = fields.change_object("settings");
        Some(Self { name: name?, description: description?, settings: settings? })
    }
}

impl UpdateOrganization {
    pub(super) fn into_update(self) -> Update {
        Update {
            name: self.name.map(Into::into),
            description: self.description.map(|text| text.0),
            default_role: self.settings.default_role.map(|role| role.0),
            allow_public_projects: self.settings.allow_public_projects,
        }
    }
}

#[derive(Debug)]
struct UpdateSettings {
    default_role: Option<DefaultRole>,
    allow_public_projects: Option<bool>,
}

impl Record<Api> for UpdateSettings {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let default_role = fields.change("default_role");
        let allow_public_projects = fields.change("allow_public_projects");
        Some(Self { default_role: default_role?, allow_public_projects: allow_public_projects? })
    }
}
