//! Scopes of callers with a valid credential, outside of any organization.

use db::Tx;
use kernel::error::{Code, Error};
use kernel::ids::{OrganizationId, UserId};

use crate::store;
use crate::store::organizations::OrganizationCreator;

use super::{Caller, KeyKind, LockedTx};
use trail::Trail;

/// A caller with a valid credential.
#[derive(Clone, Debug)]
pub struct CallerScope {
    caller: Caller,
}

impl CallerScope {
    /// Admits users, and keys of this kind.
    ///
    /// # Errors
    /// 403.
    pub fn admit(caller: Caller, kind: KeyKind) -> Result<Self, Error> {
        caller.check_may_manage(kind)?;
        Ok(Self { caller })
    }
    /// Returns the user whose roles apply; for an API key, its creator.
    pub fn user_id(&self) -> UserId {
        self.caller.user_id
    }
    /// Returns the only organization that the caller may act in, if it is an API key.
    pub fn only_organization(&self) -> Option<OrganizationId> {
        self.caller.key.as_ref().map(|key| key.organization_id)
    }
}

/// A user with an access token.
#[derive(Clone, Debug)]
pub struct PersonScope {
    user_id: UserId,
    trail: Trail,
}

impl PersonScope {
    /// Admits users with an access token.
    ///
    /// # Errors
    /// 403 for an API key.
    pub fn admit(caller: &Caller, trail: Trail) -> Result<Self, Error> {
        match caller.key {
            None => Ok(Self { user_id: caller.user_id, trail }),
            Some(_) => Err(Code::OutsideApiKeyScope.into()),
        }
    }
    pub fn user_id(&self) -> UserId {
        self.user_id
    }
    /// Returns the caller's data for the audit trail.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }

    /// Locks the user's row, and reads the data that decides whether the user can create another
    /// organization. The lock serializes concurrent requests, so that each of them counts the organizations
    /// of the others.
    ///
    /// # Errors
    /// 401 if the account doesn't exist.
    pub async fn lock_and_recheck<'t>(
        &self,
        tx: &'t mut Tx,
    ) -> Result<(LockedTx<'t>, OrganizationCreator), Error> {
        accounts::store::users::lock(tx, self.user_id).await?;
        let creator =
            store::organizations::creator(tx, self.user_id).await?.ok_or(Code::InvalidAccessToken)?;
        Ok((LockedTx::new(tx), creator))
    }
}
