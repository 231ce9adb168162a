//! Tenants: organizations and what is in them, projects, members and invitations.
//!
//! [`crate::access`] says who may do what and makes the scopes; [`crate::roles`] holds its two tables. An operation of this
//! subject takes the handle, a scope and checked values; it opens the transaction, asks again under the lock (`hold`),
//! decides by a pure rule (`rules::membership`, `rules::project_membership`, `rules::counts`), writes, leaves an entry in the
//! audit trail, and commits. Removals and changes of roles announce themselves to what is held in memory.

pub mod access;
pub mod fields;
pub mod invitations;
pub mod mails;
pub mod members;
pub mod organizations;
pub mod project_members;
pub mod projects;
pub mod roles;
pub mod rules;
pub mod store;

use std::ops::Deref;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use db::Page;
use db::{Db, Tx};
use kernel::clock::{Clock, Time};
use kernel::error::Error;
use kernel::ids::{OrganizationId, UserId};
use kernel::limits::Limits;
use kernel::random::Random;
use mail::posting::Outbox;
use trail::Trail;

/// A handle on the subject; cheap to clone.
#[derive(Clone)]
pub struct Tenants(Arc<Parts>);

/// What the subject needs.
pub struct Parts {
    pub db: Db,
    pub clock: Clock,
    pub random: Random,
    pub outbox: Arc<Outbox>,
    /// How many of a kind there may be.
    pub limits: Limits,
    /// The organization's money when it comes and goes.
    pub money: MoneyHooks,
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

/// What billing does with an organization's money, in the transactions of this subject.
pub struct MoneyHooks {
    /// Opens the books of a new organization.
    pub open: OpenHook,
    /// Settles the books of an organization that is about to be deleted, under its lock.
    pub settle: SettleHook,
}

/// See [`MoneyHooks::open`].
pub type OpenHook =
    Box<dyn for<'a> Fn(&'a mut Tx, Founding) -> BoxFuture<'a, Result<(), Error>> + Send + Sync>;
/// See [`MoneyHooks::settle`]. Its errors are the refusals of the deletion.
pub type SettleHook =
    Box<dyn for<'a> Fn(&'a mut Tx, Closing<'a>) -> BoxFuture<'a, Result<(), Error>> + Send + Sync>;

/// A new organization, as far as its money is concerned.
#[derive(Clone, Copy, Debug)]
pub struct Founding {
    /// The organization.
    pub organization_id: OrganizationId,
    /// The person who makes it.
    pub user_id: UserId,
    /// Whether their address is verified.
    pub is_verified: bool,
    /// Whether an organization of theirs was given the first credit limit before, even if it is gone.
    pub had_credit: bool,
    /// The instant.
    pub now: Time,
}

/// An organization that is about to be deleted, as far as its money is concerned.
#[derive(Clone, Copy, Debug)]
pub struct Closing<'a> {
    /// The organization.
    pub organization_id: OrganizationId,
    /// Its name, for the last invoice.
    pub name: &'a str,
    /// For the audit trail.
    pub trail: &'a Trail,
    /// The instant.
    pub now: Time,
}

/// What a list of members or projects is narrowed to.
#[derive(Clone, Debug)]
pub struct Search<R> {
    /// The page.
    pub page: Page,
    /// Only those whose folded name or address holds this; empty: all.
    pub folded: String,
    /// Only those with this role.
    pub role: Option<R>,
}

/// One page of a list.
#[derive(Clone, Debug)]
pub struct Listed<T> {
    /// Its rows.
    pub rows: Vec<T>,
    /// The number of rows on all pages.
    pub total: i64,
}
