//! Access for whoever has a valid credential.

use crate::app::App;
use crate::db::Tx;
use crate::error::{Code, Error};
use crate::ids::{OrganizationId, UserId};
use crate::store;
use crate::store::organizations::Maker;

use super::{Access, AccessDoc, Call, Caller, HeldTx, Trail, manager};

/// An access token or an API key, whatever the key is for.
#[derive(Clone, Copy, Debug)]
pub struct Anyone;

/// Somebody with a valid credential.
#[derive(Clone, Debug)]
pub struct CallerScope {
    caller: Caller,
}

impl CallerScope {
    /// Whose roles count.
    pub fn user_id(&self) -> UserId {
        self.caller.user_id()
    }
    /// The one organization that the caller is confined to, when it is an API key.
    pub fn only_organization(&self) -> Option<OrganizationId> {
        match &self.caller {
            Caller::Person(_) => None,
            Caller::Key(key) => Some(key.organization_id),
        }
    }
}

impl Access for Anyone {
    type Scope = CallerScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<CallerScope, Error> {
        let caller = manager(app, call).await?;
        caller.may_call(app, call)?;
        Ok(CallerScope { caller })
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("bearer"), "access token or API key")
    }
}

/// An access token, or an API key that was not narrowed to some model calls.
#[derive(Clone, Copy, Debug)]
pub struct Manager;

impl Access for Manager {
    type Scope = CallerScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<CallerScope, Error> {
        let caller = manager(app, call).await?;
        caller.may_manage(app, call)?;
        Ok(CallerScope { caller })
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("bearer"), "access token, or API key without limits on models and tokens")
    }
}

/// A person: what lies outside every API key's own organization (decisions, section 8).
#[derive(Clone, Copy, Debug)]
pub struct Person;

/// A person with an access token.
#[derive(Clone, Debug)]
pub struct PersonScope {
    user_id: UserId,
    trail: Trail,
}

impl PersonScope {
    /// Who it is.
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
        store::users::lock(tx, self.user_id).await?;
        let maker = store::organizations::maker(tx, self.user_id).await?.ok_or(Code::InvalidAccessToken)?;
        Ok((HeldTx::new(tx), maker))
    }
}

impl Access for Person {
    type Scope = PersonScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<PersonScope, Error> {
        match manager(app, call).await? {
            Caller::Person(user_id) => Ok(PersonScope { user_id, trail: Trail::of(call) }),
            Caller::Key(_) => Err(Code::OutsideApiKeyScope.into()),
        }
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("accessToken"), "access token (an API key: 403)")
    }
}
