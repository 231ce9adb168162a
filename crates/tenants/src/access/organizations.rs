//! Scopes of organizations: the table of `roles.rs` decides.

use crate::roles::{OrganizationAction, OrganizationRole};
use crate::rules::membership::Grantor;
use crate::store;
use db::Tx;
use kernel::error::{Code, Error};
use kernel::ids::{OrganizationId, ProjectId, UserId};

use crate::Tenants;
use crate::store::organizations::{Organization, OrganizationDetail};
use crate::store::standings;

use super::{Caller, HeldTx, KeyKind};
use trail::Trail;

/// The right to an action on an organization.
#[derive(Clone, Debug)]
pub struct OrgScope {
    caller: Caller,
    organization: OrganizationDetail,
    action: OrganizationAction,
    role: OrganizationRole,
    trail: Trail,
}

impl OrgScope {
    /// Lets in a caller whose role allows the action.
    ///
    /// # Errors
    /// 404 and 403.
    pub async fn admit(
        tenants: &Tenants,
        organization_id: OrganizationId,
        caller: Caller,
        action: OrganizationAction,
        trail: Trail,
    ) -> Result<Self, Error> {
        FoundOrganization::find(tenants, organization_id, caller).await?.admit(action, trail)
    }

    /// For the audit trail.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }
    /// The person whose roles count.
    pub fn user_id(&self) -> UserId {
        self.caller.user_id
    }
    /// The tenant.
    pub fn organization_id(&self) -> OrganizationId {
        self.organization.organization.id
    }
    /// The organization as it was at the gate.
    pub fn into_organization(self) -> OrganizationDetail {
        self.organization
    }
    /// The caller's role in it.
    pub fn role(&self) -> OrganizationRole {
        self.role
    }
    /// The one project that the caller is confined to, when it is an API key.
    pub fn only_project(&self) -> Option<ProjectId> {
        self.caller.only_project()
    }

    /// Takes the organization's lock and asks again what the gate asked, because the answer may have changed since.
    ///
    /// # Errors
    /// 404 and 403, as at the gate.
    pub async fn hold<'t>(&self, tx: &'t mut Tx) -> Result<(HeldTx<'t>, HeldOrganization), Error> {
        store::organizations::lock(tx, self.organization_id()).await?;
        self.ask_again(tx).await
    }

    /// The same, with the lock that is needed to remove or rename the organization.
    ///
    /// # Errors
    /// 404 and 403, as at the gate.
    pub async fn hold_whole<'t>(&self, tx: &'t mut Tx) -> Result<(HeldTx<'t>, HeldOrganization), Error> {
        store::organizations::lock_whole(tx, self.organization_id()).await?;
        self.ask_again(tx).await
    }

    async fn ask_again<'t>(&self, tx: &'t mut Tx) -> Result<(HeldTx<'t>, HeldOrganization), Error> {
        let standing = standings::in_organization(tx, self.organization_id(), self.user_id())
            .await?
            .ok_or(Code::OrganizationNotFound)?;
        let role = self.caller.organization_role(tx, self.organization_id(), standing.role).await?;
        let role = role.filter(|role| role.allows(self.action)).ok_or(Code::InsufficientRole)?;
        let grantor = Grantor { role, is_key: self.caller.key.is_some() };
        let OrganizationDetail { organization: row, projects_count, .. } = standing.organization;
        Ok((HeldTx::new(tx), HeldOrganization { row, projects_count, grantor }))
    }
}

/// An organization while its lock is held.
#[derive(Clone, Debug)]
pub struct HeldOrganization {
    /// The organization.
    pub row: Organization,
    /// Its projects.
    pub projects_count: i64,
    /// The caller, as far as it gives roles to others.
    pub grantor: Grantor<OrganizationRole>,
}

/// An organization that is there, and its caller's role; nothing is allowed yet.
#[derive(Debug)]
pub struct FoundOrganization {
    caller: Caller,
    organization: OrganizationDetail,
    role: Option<OrganizationRole>,
}

impl FoundOrganization {
    /// Finds the organization and the caller's role in it.
    ///
    /// # Errors
    /// 404.
    pub async fn find(
        tenants: &Tenants,
        organization_id: OrganizationId,
        caller: Caller,
    ) -> Result<Self, Error> {
        let mut tx = tenants.db.read().await?;
        let standing = standings::in_organization(&mut tx, organization_id, caller.user_id)
            .await?
            .ok_or(Code::OrganizationNotFound)?;
        let role = caller.organization_role(&mut tx, organization_id, standing.role).await?;
        Ok(Self { caller, organization: standing.organization, role })
    }

    /// Lets in a caller whose role allows the action.
    ///
    /// # Errors
    /// 403.
    pub fn admit(self, action: OrganizationAction, trail: Trail) -> Result<OrgScope, Error> {
        let Self { caller, organization, role } = self;
        caller.confine(organization.organization.id, None)?;
        caller.may_manage(KeyKind::Whole)?;
        let role = role.filter(|role| role.allows(action)).ok_or(Code::InsufficientRole)?;
        Ok(OrgScope { caller, organization, action, role, trail })
    }
}
