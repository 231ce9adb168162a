//! Tenants: organizations with their projects, members and invitations.
//!
//! * [`access`] checks permissions with the tables in [`roles`], and creates the scopes.
//! * [`organizations`], [`members`], [`invitations`], [`projects`] and [`project_members`] contain the
//!   operations. Each operation takes the handle, a scope and checked values. It opens the transaction,
//!   repeats the check under the lock, decides by a pure rule of [`rules`], writes, and adds an audit entry.
//!   It commits, or leaves the commit to its caller ([`db::Uncommitted`]). [`audit_log`] lists the audit
//!   entries, and [`navigation`] reads the contents of a page's navigation.
//! * [`mails`] writes the e-mails of accounts and organizations when they are sent.
//! * [`fields`] reads roles, visibility and addresses from input; [`store`] contains the SQL. Every replica
//!   is notified of removals and changes of roles.

pub mod access;
pub mod audit_log;
pub mod fields;
pub mod invitations;
pub mod mails;
pub mod members;
pub mod navigation;
pub mod organizations;
pub mod project_members;
pub mod projects;
pub mod roles;
pub mod rules;
pub mod sign_ons;
pub mod store;

use std::ops::Deref;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use db::{Db, Page, Tx, Uncommitted};
use kernel::addresses::PlainMailbox;
use kernel::clock::{Clock, Time};
use kernel::error::Error;
use kernel::ids::{OrganizationId, UserId};
use kernel::limits::Limits;
use kernel::random::Random;
use mail::posting::Outbox;
use sign_on::Providers;
use trail::Trail;

/// The handle of tenants; cheap to clone.
#[derive(Clone)]
pub struct Tenants(Arc<(Db, Parts)>);

/// The parts of [`Tenants`].
pub struct Parts {
    pub clock: Clock,
    pub random: Random,
    pub outbox: Arc<Outbox>,
    pub limits: Limits,
    /// The identity providers.
    pub providers: Arc<Providers>,
    /// The steps of billing when an organization is created or deleted.
    pub money: MoneyHooks,
}

impl Tenants {
    /// Creates a handle with these parts.
    pub fn new(db: Db, parts: Parts) -> Self {
        Self(Arc::new((db, parts)))
    }

    /// Returns the database. It is private to this crate, so that only operations of this crate open
    /// transactions.
    pub(crate) fn db(&self) -> &Db {
        &self.0.0
    }

    /// Wakes the job that sends e-mails when this result is committed.
    pub(crate) fn notify_after<T>(&self, result: Uncommitted<T>) -> Uncommitted<T> {
        let outbox = Arc::clone(&self.outbox);
        result.then(move || outbox.notify_one())
    }
}

impl Deref for Tenants {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0.1
    }
}

/// The steps of billing in the transactions of tenants.
pub struct MoneyHooks {
    /// Creates the wallet of a new organization.
    pub open: OpenHook,
    /// Settles the money of an organization that is about to be deleted, under its lock.
    pub settle: SettleHook,
}

/// The type of [`MoneyHooks::open`].
pub type OpenHook =
    Box<dyn for<'a> Fn(&'a mut Tx, TenantOpening) -> BoxFuture<'a, Result<(), Error>> + Send + Sync>;
/// The type of [`MoneyHooks::settle`]. If it returns an error, the organization isn't deleted.
pub type SettleHook =
    Box<dyn for<'a> Fn(&'a mut Tx, TenantClosing<'a>) -> BoxFuture<'a, Result<(), Error>> + Send + Sync>;

/// A new organization, for billing.
#[derive(Clone, Debug)]
pub struct TenantOpening {
    pub organization_id: OrganizationId,
    /// The user who creates the organization.
    pub user_id: UserId,
    /// The mailbox of the user's address.
    pub mailbox: PlainMailbox,
    /// `true` if the user's address is verified.
    pub is_verified: bool,
    /// `true` if an organization of this user has already received the first credit limit, even if it was
    /// deleted.
    pub had_credit: bool,
    pub now: Time,
}

/// An organization that is about to be deleted, for billing.
#[derive(Clone, Copy, Debug)]
pub struct TenantClosing<'a> {
    pub organization_id: OrganizationId,
    /// The organization's name, for the last invoice.
    pub name: &'a str,
    pub trail: &'a Trail,
    pub now: Time,
}

/// The filter and the page of a list.
#[derive(Clone, Debug)]
pub struct Search<R> {
    pub page: Page,
    /// The text that the folded name or address must contain; empty for all entries.
    pub folded: String,
    /// The role that an entry must have; `None` for all.
    pub role: Option<R>,
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct ListPage<T> {
    pub rows: Vec<T>,
    /// The number of rows on all pages.
    pub total: i64,
}
