//! Access to routes that need no credential.

use crate::Api;
use accounts::rules::user_agents::UserAgent;
use kernel::error::{Code, Error};
use kernel::limiter::{self, Subject};

use super::{Access, AccessDoc, Call, Trail, rate_limited, trail, user_agent};

/// The access without a credential. Some variants are limited by client address.
#[derive(Clone, Copy, Debug)]
pub enum Public {
    /// Registration: `limits.registrations_per_minute`.
    Register,
    /// Login and other guessable credentials: `limits.logins_per_minute`.
    Login,
    /// Not limited.
    Unlimited,
    /// Not limited, and available before the database is ready.
    Always,
}

/// A caller without a credential.
#[derive(Clone, Debug)]
pub struct Visitor {
    trail: Trail,
    user_agent: Option<UserAgent>,
}

impl Visitor {
    /// Returns the audit trail.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }
    /// Returns the client's header `User-Agent`.
    pub fn user_agent(&self) -> Option<&UserAgent> {
        self.user_agent.as_ref()
    }
}

impl Public {
    /// Counts a call by its client address.
    pub(super) fn limit(self, api: &Api, call: &Call) -> Result<(), Error> {
        let limits = &api.limits;
        let (scope, per_minute) = match self {
            Self::Register => ("register", limits.registrations_per_minute),
            Self::Login => ("login", limits.logins_per_minute),
            Self::Unlimited | Self::Always => return Ok(()),
        };
        if limits.enabled {
            let key = limiter::key_for(scope, Subject::Address(call.address));
            api.limiter.check(key, per_minute, api.clock.now()).map_err(rate_limited)?;
        }
        Ok(())
    }
}

impl Access<Api> for Public {
    type Scope = Visitor;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<Visitor, Error> {
        self.limit(api, call)?;
        Ok(Visitor { trail: trail(call), user_agent: user_agent(call) })
    }
    fn describe(&self) -> AccessDoc {
        let doc = AccessDoc::new(None, "public");
        match self {
            Self::Register | Self::Login => doc.refuses(&[Code::RateLimited]),
            Self::Unlimited => doc,
            Self::Always => doc.before_ready(),
        }
    }
}
