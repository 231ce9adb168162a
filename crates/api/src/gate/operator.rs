//! Access to the pages of the installation, for its operators.

use crate::Api;
use kernel::error::{Code, Error};
use kernel::ids::UserId;
use operators::roles;

use super::bearer::count_management;
use super::{Access, AccessDoc, Call, Trail, trail};

/// The access of operators, in a browser. Other users get 404, as for a path that doesn't exist. Operators
/// also get 404 from addresses that aren't in `console.operator_addresses`. An operator needs a second
/// factor.
#[derive(Clone, Copy, Debug)]
pub enum Operator {
    /// Read access.
    Read,
    /// Access to changes: the operator has recently confirmed their identity.
    Write,
}

/// An operator.
#[derive(Clone, Debug)]
pub struct OperatorScope {
    user_id: UserId,
    trail: Trail,
}

impl OperatorScope {
    pub fn user_id(&self) -> UserId {
        self.user_id
    }
    /// Returns the audit trail.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }
}

impl Access<Api> for Operator {
    type Scope = OperatorScope;

    async fn admit(&self, api: &Api, call: &mut Call) -> Result<OperatorScope, Error> {
        let session = call.credential.browser_session().ok_or(Code::UnknownPath)?;
        let allowed = &api.console.operator_addresses;
        let is_near = allowed.is_empty()
            || call
                .address
                .is_some_and(|address| allowed.iter().any(|range| range.contains(&address.to_canonical())));
        if !is_near || !roles::is_operator(&api.operators, session.user_id).await? {
            return Err(Code::UnknownPath.into());
        }
        count_management(api, call, session.user_id)?;
        roles::require_second_factor(&api.operators, session.user_id).await?;
        if matches!(self, Self::Write) && !api.accounts.is_fresh(session).await? {
            return Err(Code::ReauthenticationRequired.into());
        }
        Ok(OperatorScope { user_id: session.user_id, trail: trail(call) })
    }

    fn describe(&self) -> AccessDoc {
        let text = match self {
            Self::Read => "operator",
            Self::Write => "operator, recently confirmed",
        };
        AccessDoc::new(Some("cookie"), text)
    }
}
