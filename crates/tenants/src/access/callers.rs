//! Scopes of callers with a valid credential, in no place yet.

use db::Tx;
use kernel::error::{Code, Error};
use kernel::ids::{OrganizationId, UserId};

use crate::store;
use crate::store::organizations::Maker;

use super::{Caller, HeldTx, KeyKind};
use trail::Trail;

/// A caller with a valid credential.
#[derive(Clone, Debug)]
pub struct CallerScope {
    caller: Caller,
}

impl CallerScope {
    /// Lets in people, and keys of this kind.
    ///
    /// # Errors
    /// 403.
    pub fn admit(caller: Caller, with: KeyKind) -> Result<Self, Error> {
        caller.may_manage(with)?;
        Ok(Self { caller })
    }
    /// The person whose roles count.
    pub fn user_id(&self) -> UserId {
        self.caller.user_id
    }
    /// The one organization that the caller is confined to, when it is an API key.
    pub fn only_organization(&self) -> Option<OrganizationId> {
        self.caller.key.as_ref().map(|key| key.organization_id)
    }
}

/// A person with an access token.
#[derive(Clone, Debug)]
pub struct PersonScope {
    user_id: UserId,
    trail: Trail,
}

impl PersonScope {
    /// Lets in people.
    ///
    /// # Errors
    /// 403 for an API key.
    pub fn admit(caller: &Caller, trail: Trail) -> Result<Self, Error> {
        match caller.key {
            None => Ok(Self { user_id: caller.user_id, trail }),
            Some(_) => Err(Code::OutsideApiKeyScope.into()),
        }
    }
    /// The person.
    pub fn user_id(&self) -> UserId {
        self.user_id
    }
    /// For the audit trail.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }

    /// Locks the person's row, so that of two organizations made at once the second sees the first, and reads what decides
    /// about one more.
    ///
    /// # Errors
    /// 401 when the account is gone.
    pub async fn hold<'t>(&self, tx: &'t mut Tx) -> Result<(HeldTx<'t>, Maker), Error> {
        accounts::store::users::lock(tx, self.user_id).await?;
        let maker = store::organizations::maker(tx, self.user_id).await?.ok_or(Code::InvalidAccessToken)?;
        Ok((HeldTx::new(tx), maker))
    }
}
