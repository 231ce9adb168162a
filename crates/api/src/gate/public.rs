//! Access to routes that ask for no credential.

use crate::Api;
use kernel::error::Error;
use kernel::limiter;
use kernel::limiter::Subject;

use super::{Access, AccessDoc, Call, Trail, rate_limited, trail};

/// Open to everybody; an address that calls too often has to wait.
#[derive(Clone, Copy, Debug)]
pub enum Public {
    /// Registration: `limits.registrations_per_minute`.
    Register,
    /// Login and what is as cheap to guess at: `limits.logins_per_minute`.
    Login,
    /// No limit of its own.
    Unlimited,
    /// The same, and answered even before the database is ready.
    Always,
}

/// A caller without a credential.
#[derive(Clone, Debug)]
pub struct Visitor {
    trail: Trail,
}

impl Visitor {
    /// For the audit trail.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }
}

impl Public {
    /// Counts a call of this address.
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
        Ok(Visitor { trail: trail(call) })
    }
    fn describe(&self) -> AccessDoc {
        let doc = AccessDoc::new(None, "public");
        if matches!(self, Self::Always) { doc.before_ready() } else { doc }
    }
}
