//! The caller of a management endpoint.

use crate::roles::OrganizationRole;
use crate::rules::allowed_ips::AllowedIps;
use crate::rules::key_bounds::Bounds;
use crate::store;
use db::Tx;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::{ApiKeyId, OrganizationId, ProjectId, UserId};

use super::projects::{Roles, roles};

/// A person with an access token, or an API key that acts for people.
///
/// A key acts with the roles of the person who made it. A secret that another person made by a rotation acts with the lower
/// of both people's roles, so that a rotation hands out no role that its author doesn't have.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The person, or the key's maker.
    pub user_id: UserId,
    /// The person who made this secret of the key, where that isn't the key's maker: their roles count as well.
    pub rotated_by: Option<UserId>,
    /// The limits of the key, when it is one.
    pub key: Option<KeyLimits>,
}

/// What an API key may do at all, whatever its makers' roles.
#[derive(Clone, Debug)]
pub struct KeyLimits {
    /// The key's id.
    pub id: ApiKeyId,
    /// The one organization that it may act in.
    pub organization_id: OrganizationId,
    /// The one project in it.
    pub project_id: ProjectId,
    /// `true` if the key has every permission and is limited neither to models nor in tokens: only such a key manages.
    pub is_whole: bool,
    /// `true` if the configuration lets keys make this request (`api_keys.management`).
    pub may_manage: bool,
    /// The addresses that a key handed out by this one is confined to.
    pub allowed_ips: Option<AllowedIps>,
    /// The most requests a minute of such a key.
    pub rate_limit: Option<i64>,
    /// The latest end of such a key.
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

/// The API keys that an access lets in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyKind {
    /// Keys that were not narrowed to some model calls.
    Whole,
    /// Narrowed keys too: it is how they see what they used.
    Any,
}

impl Caller {
    /// A person with an access token.
    pub fn person(user_id: UserId) -> Self {
        Self { user_id, rotated_by: None, key: None }
    }

    /// Returns the person who holds the credential: of a key, who rotated it last, else its maker.
    pub fn holder(&self) -> UserId {
        self.rotated_by.unwrap_or(self.user_id)
    }

    /// Refuses an API key that would make, change or rotate a key with wider restrictions or a longer life than its own.
    ///
    /// # Errors
    /// 403 `key_exceeds_caller`.
    pub fn may_hand_out(&self, bounds: &Bounds<'_>) -> Result<(), Error> {
        self.key.as_ref().map_or(Ok(()), |key| bounds.check_within(&key.bounds()))
    }

    /// The one project that the caller is confined to, when it is an API key.
    pub(super) fn only_project(&self) -> Option<ProjectId> {
        self.key.as_ref().map(|key| key.project_id)
    }

    /// The role in an organization that this caller has, from the role that the person of `user_id` has there.
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

    /// The roles that this caller has in a project, from those that the person of `user_id` has there.
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

    /// Refuses a key outside the one organization, and the one project in it, that it belongs to.
    pub(super) fn confine(
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

    /// Refuses a key of another kind, and what the configuration keeps from keys.
    pub(super) fn may_manage(&self, with: KeyKind) -> Result<(), Error> {
        match &self.key {
            Some(key) if with == KeyKind::Whole && !key.is_whole => Err(Code::ManagementNotAllowed.into()),
            Some(key) if !key.may_manage => Err(Code::ApiKeyManagementDisabled.into()),
            _ => Ok(()),
        }
    }
}
