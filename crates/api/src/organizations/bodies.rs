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
        /// The name, of 1 to 100 characters.
        name: Name = required,
        /// A description of up to 1,000 characters.
        description: Option<DescriptionText> = optional,
        /// The settings of the organization.
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
        /// The role of guests whose invitation doesn't specify one.
        default_role: DefaultRole = or(DefaultRole(OrganizationRole::Member)),
        /// `true` if projects may be `public`, so that every member of the organization can view them.
        allow_public_projects: bool = or(false),
    }
}

record! {
    /// A merge patch of an organization.
    #[derive(Debug)]
    pub struct UpdateOrganization in Api {
        /// The name, of 1 to 100 characters.
        name: Option<Name> = change,
        /// A description of up to 1,000 characters.
        description: Patch<DescriptionText> = patch,
        /// The settings of the organization.
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
        /// The role of guests whose invitation doesn't specify one.
        default_role: Option<DefaultRole> = change,
        /// `true` if projects may be `public`, so that every member of the organization can view them.
        allow_public_projects: Option<bool> = change,
        /// `true` if only users with a second factor have access to the organization; API keys keep working.
        /// Only an owner who has recently confirmed their identity can change this.
        require_second_factor: Option<bool> = change,
        /// `true` if members managed by a provider of the organization have access only in the console, after
        /// a sign-on with this provider. API keys keep working, and owners can use other sign-in methods.
        /// Only an owner who has recently confirmed their identity can change this.
        require_sign_on: Option<bool> = change,
    }
}
