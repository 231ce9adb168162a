//! Billing: usage that is counted exactly once, and the money that it costs.
//!
//! - [`decision`] says whether a model call may be made and sets money aside for it, [`reservations`] prolongs and frees
//!   that, and [`usage`] records usage events; all go through one queue into the database ([`crate::books`]).
//! - [`wallets`] and [`summary`] say how an organization stands, [`invoices`] what it was billed, [`usage_reports`]
//!   what it used, and [`pricing`] what models cost.
//! - [`crate::bookkeeping`] closes months, and books what operators do: credits, payments, void invoices.
//! - [`first_credit`] gives credit to the first organization of a verified person, and [`settlement`] ends the books of
//!   one that is deleted.
//! - [`crate::audit`] recomputes all of it.
//! - [`metrics`] and [`health`] are what billing says of itself.
//!
//! Rules are in [`crate::rules`], without input or output; SQL is in [`crate::store`].

pub mod audit;
pub mod auditing;
pub mod bookkeeping;
pub mod books;
pub mod decision;
pub mod expired_reservations;
pub mod first_credit;
pub mod health;
pub mod invoices;
pub mod metrics;
pub mod organization_money;
pub mod pricing;
pub mod reservations;
pub mod retention;
pub mod rules;
pub mod settings;
pub mod settlement;
pub mod store;
pub mod summary;
pub mod totals;
pub mod usage;
pub mod usage_reports;
pub mod wallets;

use std::ops::Deref;
use std::sync::Arc;

use crate::books::Books;
use crate::totals::UsageTotals;
use catalog::CurrentCatalog;
use cluster::clock_guard::ClockGuard;
use cluster::feed::Feed;
use db::Db;
use kernel::clock::Clock;
use kernel::random::Random;

use metrics::Counters;
use settings::{AuditSettings, Settings};

/// A handle on the books; cheap to clone.
#[derive(Clone)]
pub struct Billing(Arc<Parts>);

/// Everything that billing needs.
pub struct Parts {
    /// The database.
    pub db: Db,
    /// The source of time.
    pub clock: Clock,
    /// Tells whether that can be trusted.
    pub clock_guard: Arc<ClockGuard>,
    /// The source of chance.
    pub random: Random,
    /// The feed of changes, for what is held in memory.
    pub feed: Arc<Feed>,
    /// Models and prices.
    pub catalog: Arc<CurrentCatalog>,
    /// The queue to the books.
    pub books: Books,
    /// Usage of closed months, by project and key.
    pub usage_totals: Arc<UsageTotals>,
    /// Counters.
    pub metrics: Counters,
    /// Table `billing` of the configuration.
    pub settings: Settings,
    /// Table `audit` of the configuration.
    pub audit: AuditSettings,
}

impl Billing {
    /// Puts the parts together.
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

impl Deref for Billing {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}
