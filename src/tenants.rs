//! Tenants: organizations and what is in them, projects, members and invitations.
//!
//! [`crate::access`] says who may do what and makes the scopes; [`crate::roles`] holds its two tables. An operation of this
//! subject takes the handle, a scope and checked values; it opens the transaction, asks again under the lock (`hold`),
//! decides by a pure rule (`rules::membership`, `rules::project_membership`, `rules::counts`), writes, leaves an entry in the
//! audit trail, announces what others hold in memory, and commits.

pub mod projects;

use std::ops::Deref;
use std::sync::Arc;

use crate::clock::Clock;
use crate::config;
use crate::db::Db;
use crate::mail::posting::Outbox;
use crate::random::Random;

/// A handle on the subject; cheap to clone.
#[derive(Clone)]
pub struct Tenants(Arc<Parts>);

/// What the subject needs.
pub struct Parts {
    pub(crate) db: Db,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) outbox: Arc<Outbox>,
    /// How many of a kind there may be.
    pub(crate) limits: config::Limits,
    /// The currency and the credit of new organizations.
    pub(crate) billing: config::Billing,
}

impl Tenants {
    /// A handle on these parts.
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

impl Deref for Tenants {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}
