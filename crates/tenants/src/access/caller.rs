//! The caller of a management endpoint.

use crate::roles::OrganizationRole;
use crate::rules::allowed_ips::AllowedIps;
use crate::rules::key_bounds::Bounds;
use crate::store;
use accounts::second_factor;
use db::Tx;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::{ApiKeyId, OrganizationId, ProjectId, UserId};

use super::SignedInBy;
use super::project_roles::{Roles, roles};
use crate::store::organizations::Requirements;

/// A user with an access token, or an API key that acts on behalf of users.
///
/// A key acts with the roles of its creator. If another user has rotated its secret, the lower of both users'
/// roles applies, so that a rotation can't grant a role that the user who rotates doesn't have.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The user, or the key's creator.
    pub user_id: UserId,
    /// The user who created this secret by a rotation, if they aren't the key's creator. Their roles apply as
    /// well.
    pub rotated_by: Option<UserId>,
    /// The limits of the API key, if the caller is one.
    pub key: Option<KeyLimits>,
    /// `true` for a user who has recently confirmed their identity.
    pub is_fresh: bool,
    /// The user's sign-in method; `None` for an API key, or if it makes no difference.
    pub signed_in_by: Option<SignedInBy>,
}

/// The limits of an API key as a caller, regardless of the roles of its creator.
#[derive(Clone, Debug)]
pub struct KeyLimits {
    pub id: ApiKeyId,
    /// The only organization that the key may act in.
    pub organization_id: OrganizationId,
    /// The only project that the key may act in.
    pub project_id: ProjectId,
    /// `true` if the key has every permission and no limit on models or tokens. Only such a key can manage an
    /// organization.
    pub is_unrestricted: bool,
    /// `true` if the configuration allows keys to make this request (`api_keys.management`).
    pub may_manage: bool,
    /// The addresses that keys created by this key are restricted to.
    pub allowed_ips: Option<AllowedIps>,
    /// The maximum `rate_limit` of keys created by this key, in requests per minute.
    pub rate_limit: Option<i64>,
    /// The latest expiry of keys created by this key.
    pub expires_at: Option<Time>,
}

impl KeyLimits {
    fn bounds(&self) -> Bounds<'_> {
        Bounds {
            allowed_ips: self.allowed_ips.as_ref(),
            rate_limit: self.rate_limit,
            expires_at: self.expires_at,
        }
    }
}

/// The API keys that an action admits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyKind {
    /// Only keys that aren't restricted to certain model calls.
    Unrestricted,
    /// Restricted keys too, so that they can read their own usage.
    Any,
}

impl Caller {
    /// Creates the caller for a user with an access token.
    pub fn person(user_id: UserId) -> Self {
        Self { user_id, rotated_by: None, key: None, is_fresh: false, signed_in_by: None }
    }

    /// Sets whether the user has recently confirmed their identity.
    #[must_use]
    pub fn with_freshness(self, is_fresh: bool) -> Self {
        Self { is_fresh, ..self }
    }

    /// Sets the user's sign-in method.
    #[must_use]
    pub fn with_sign_in(self, signed_in_by: SignedInBy) -> Self {
        Self { signed_in_by: Some(signed_in_by), ..self }
    }

    /// Checks that the user has recently confirmed their identity, so that an old session can't delete an
    /// organization or make owners. API keys have no sessions, so the check doesn't apply to them.
    ///
    /// # Errors
    /// `reauthentication_required`.
    pub(crate) fn require_proof(&self) -> Result<(), Error> {
        if self.key.is_some() || self.is_fresh { Ok(()) } else { Err(Code::ReauthenticationRequired.into()) }
    }

    /// Checks that the user meets the organization's requirements, which don't apply to API keys.
    ///
    /// # Errors
    /// `sign_on_required`, `second_factor_enrolment_required`.
    pub(super) async fn check_requirements(
        &self,
        tx: &mut Tx,
        organization_id: OrganizationId,
        requirements: Requirements,
    ) -> Result<(), Error> {
        if self.key.is_some() {
            return Ok(());
        }
        if requirements.sign_on {
            // If the sign-in method is unknown, the user doesn't count as signed in with the provider.
            let signed_in_by = self.signed_in_by.as_ref().ok_or(Code::SignOnRequired)?;
            signed_in_by.check(tx, organization_id, self.user_id).await?;
        }
        if requirements.second_factor {
            second_factor::require(tx, self.user_id).await?;
        }
        Ok(())
    }

    /// Does the same as [`Self::check_requirements`], but also reads the organization's requirements.
    ///
    /// # Errors
    /// `sign_on_required`, `second_factor_enrolment_required`.
    pub(super) async fn check_requirements_of(
        &self,
        tx: &mut Tx,
        organization_id: OrganizationId,
    ) -> Result<(), Error> {
        if self.key.is_some() {
            return Ok(());
        }
        let requirements = store::organizations::requirements(tx, organization_id).await?;
        self.check_requirements(tx, organization_id, requirements).await
    }

    /// Returns the user who has the credential. For a key, this is the user who last rotated it, or else its
    /// creator.
    pub fn holder(&self) -> UserId {
        self.rotated_by.unwrap_or(self.user_id)
    }

    /// Checks that a key that the calling API key creates, changes or rotates doesn't exceed the restrictions
    /// and the lifetime of the calling key.
    ///
    /// # Errors
    /// 403 `key_exceeds_caller`.
    pub fn check_key_bounds(&self, bounds: &Bounds<'_>) -> Result<(), Error> {
        self.key.as_ref().map_or(Ok(()), |key| bounds.check_within(&key.bounds()))
    }

    /// Returns the only project that the caller may act in, if it is an API key.
    pub(super) fn only_project(&self) -> Option<ProjectId> {
        self.key.as_ref().map(|key| key.project_id)
    }

    /// Returns the caller's role in an organization, given the role of `self.user_id` there.
    pub(super) async fn organization_role(
        &self,
        tx: &mut Tx,
        organization_id: OrganizationId,
        role: Option<OrganizationRole>,
    ) -> Result<Option<OrganizationRole>, Error> {
        let Some(user_id) = self.rotated_by else { return Ok(role) };
        let other = store::organization_members::role(tx, organization_id, user_id).await?;
        Ok(role.min(other.flatten()))
    }

    /// Returns the caller's roles in a project, given those of `self.user_id` there.
    pub(super) async fn project_roles(
        &self,
        tx: &mut Tx,
        organization_id: OrganizationId,
        project_id: Option<ProjectId>,
        found: Roles,
    ) -> Result<Roles, Error> {
        let Some(user_id) = self.rotated_by else { return Ok(found) };
        Ok(found.lower(roles(tx, organization_id, project_id, user_id).await?))
    }

    /// Checks that a key acts in its own organization and, if one is given, its own project.
    pub(super) fn check_key_scope(
        &self,
        organization_id: OrganizationId,
        project_id: Option<ProjectId>,
    ) -> Result<(), Error> {
        match &self.key {
            Some(key)
                if key.organization_id != organization_id
                    || project_id.is_some_and(|id| id != key.project_id) =>
            {
                Err(Code::OutsideApiKeyScope.into())
            }
            _ => Ok(()),
        }
    }

    /// Checks that a key is of this kind, and that the configuration allows keys to make this request.
    pub(super) fn check_may_manage(&self, kind: KeyKind) -> Result<(), Error> {
        match &self.key {
            Some(key) if kind == KeyKind::Unrestricted && !key.is_unrestricted => {
                Err(Code::ManagementNotAllowed.into())
            }
            Some(key) if !key.may_manage => Err(Code::ApiKeyManagementDisabled.into()),
            _ => Ok(()),
        }
    }
}
