//! Scopes of organizations. The table in [`crate::roles`] decides which actions a role allows.

use crate::roles::{OrganizationAction, OrganizationRole};
use crate::rules::membership::Grantor;
use crate::store;
use db::Tx;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::{OrganizationId, ProjectId, UserId};

use crate::Tenants;
use crate::store::organizations::{OrganizationDetail, Requirements};
use crate::store::standings;

use super::{Caller, KeyKind, LockedTx};
use trail::Trail;

/// The permission for an action on an organization.
#[derive(Clone, Debug)]
pub struct OrgScope {
    caller: Caller,
    organization: OrganizationDetail,
    action: OrganizationAction,
    role: OrganizationRole,
    trail: Trail,
}

impl OrgScope {
    /// Admits a caller whose role allows the action.
    ///
    /// # Errors
    /// 404 and 403.
    pub fn admit(
        tenants: &Tenants,
        organization_id: OrganizationId,
        caller: Caller,
        action: OrganizationAction,
        trail: Trail,
    ) -> BoxFuture<'_, Result<Self, Error>> {
        Box::pin(async move {
            FoundOrganization::find(tenants, organization_id, caller).await?.admit(action, trail)
        })
    }

    /// Returns the caller's data for the audit trail.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }
    /// Returns the user whose roles apply; for an API key, its creator.
    pub fn user_id(&self) -> UserId {
        self.caller.user_id
    }
    pub fn organization_id(&self) -> OrganizationId {
        self.organization.organization.id
    }
    /// Returns the organization as `admit` found it.
    pub fn into_organization(self) -> OrganizationDetail {
        self.organization
    }
    /// Returns the caller's role in the organization.
    pub fn role(&self) -> OrganizationRole {
        self.role
    }
    /// Returns the caller.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }
    /// Returns the only project that the caller may act in, if it is an API key.
    pub fn only_project(&self) -> Option<ProjectId> {
        self.caller.only_project()
    }

    /// Locks the organization and repeats the check of `admit`, because its result may have changed.
    ///
    /// # Errors
    /// 404 and 403, as from `admit`.
    pub async fn lock_and_recheck<'t>(
        &self,
        tx: &'t mut Tx,
    ) -> Result<(LockedTx<'t>, LockedOrganization), Error> {
        store::organizations::lock(tx, self.organization_id()).await?;
        self.recheck(tx).await
    }

    /// Does the same as [`Self::lock_and_recheck`], with the lock that removing or renaming the organization
    /// needs.
    ///
    /// # Errors
    /// 404 and 403, as from `admit`.
    pub async fn lock_for_removal_and_recheck<'t>(
        &self,
        tx: &'t mut Tx,
    ) -> Result<(LockedTx<'t>, LockedOrganization), Error> {
        store::organizations::lock_for_removal(tx, self.organization_id()).await?;
        self.recheck(tx).await
    }

    async fn recheck<'t>(&self, tx: &'t mut Tx) -> Result<(LockedTx<'t>, LockedOrganization), Error> {
        let standing = standings::in_organization(tx, self.organization_id(), self.user_id())
            .await?
            .ok_or(Code::OrganizationNotFound)?;
        let role = self.caller.organization_role(tx, self.organization_id(), standing.role).await?;
        let role = role.filter(|role| role.allows(self.action)).ok_or(Code::InsufficientRole)?;
        let requirements = standing.organization.organization.requirements();
        self.caller.check_requirements(tx, self.organization_id(), requirements).await?;
        let grantor = Grantor { role, is_key: self.caller.key.is_some() };
        Ok((LockedTx::new(tx), LockedOrganization { found: standing.organization, grantor }))
    }
}

/// An organization, read under its lock.
#[derive(Clone, Debug)]
pub struct LockedOrganization {
    pub found: OrganizationDetail,
    /// The caller as a grantor of roles.
    pub grantor: Grantor<OrganizationRole>,
}

/// An organization that exists, and the caller's role in it. This isn't a permission yet.
#[derive(Debug)]
pub struct FoundOrganization {
    caller: Caller,
    organization: OrganizationDetail,
    role: Option<OrganizationRole>,
    /// The error if the caller doesn't meet the organization's requirements.
    meets_requirements: Result<(), Error>,
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
        let mut tx = tenants.db().read().await?;
        let standing = standings::in_organization(&mut tx, organization_id, caller.user_id)
            .await?
            .ok_or(Code::OrganizationNotFound)?;
        let role = caller.organization_role(&mut tx, organization_id, standing.role).await?;
        // Only members may learn the organization's requirements.
        let requirements = match role {
            Some(_) => standing.organization.organization.requirements(),
            None => Requirements::default(),
        };
        let meets_requirements = caller.check_requirements(&mut tx, organization_id, requirements).await;
        Ok(Self { caller, organization: standing.organization, role, meets_requirements })
    }

    /// Admits a caller whose role allows the action.
    ///
    /// # Errors
    /// 403.
    pub fn admit(self, action: OrganizationAction, trail: Trail) -> Result<OrgScope, Error> {
        let Self { caller, organization, role, meets_requirements } = self;
        caller.check_key_scope(organization.organization.id, None)?;
        caller.check_may_manage(KeyKind::Unrestricted)?;
        meets_requirements?;
        let role = role.filter(|role| role.allows(action)).ok_or(Code::InsufficientRole)?;
        Ok(OrgScope { caller, organization, action, role, trail })
    }
}
