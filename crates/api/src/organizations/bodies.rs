//! The bodies that create and change an organization.

use crate::Api;
use input::record;
use input::types::{DescriptionText, Name};
use kernel::patch::Patch;
use tenants::fields::DefaultRole;
use tenants::organizations::{New, Update};
use tenants::roles::OrganizationRole;

record! {
    /// A new organization.
    #[derive(Debug)]
    pub struct CreateOrganization in Api {
        name: Name = required,
        description: Option<DescriptionText> = optional,
        settings: CreateSettings = object,
    }
}

impl CreateOrganization {
    /// Returns the values for the operation.
    pub fn into_new(self) -> New {
        New {
            name: self.name.into(),
            description: self.description.map(|text| text.0),
            default_role: self.settings.default_role.0,
            allow_public_projects: self.settings.allow_public_projects,
        }
    }
}

record! {
    #[derive(Debug)]
    struct CreateSettings in Api {
        default_role: DefaultRole = or(DefaultRole(OrganizationRole::Member)),
        allow_public_projects: bool = or(false),
    }
}

record! {
    /// A merge patch of an organization.
    #[derive(Debug)]
    pub struct UpdateOrganization in Api {
        name: Option<Name> = change,
        description: Patch<DescriptionText> = patch,
        settings: UpdateSettings = change_object,
    }
}

impl UpdateOrganization {
    /// Returns the change for the operation.
    pub fn into_update(self) -> Update {
        Update {
            name: self.name.map(Into::into),
            description: self.description.map(|text| text.0),
            default_role: self.settings.default_role.map(|role| role.0),
            allow_public_projects: self.settings.allow_public_projects,
            require_second_factor: self.settings.require_second_factor,
            require_sign_on: self.settings.require_sign_on,
        }
    }
}

record! {
    #[derive(Debug)]
    struct UpdateSettings in Api {
        default_role: Option<DefaultRole> = change,
        allow_public_projects: Option<bool> = change,
        require_second_factor: Option<bool> = change,
        require_sign_on: Option<bool> = change,
    }
}
