//! Billing: counts usage exactly once, and charges for it.
//!
//! - Calls: [`decision`] decides whether a model call may be made and reserves money for it, [`reservations`]
//!   extends and releases reservations, [`expired_reservations`] ends those that timed out, [`usage`] records
//!   usage events, and [`calls`] charges calls of our own gateway. All of them write through [`books`], the
//!   queue of database writes.
//! - Reads: [`wallets`] and [`summary`] (the balance), [`movements`] and [`credits`] (its components),
//!   [`limits`], [`invoices`], [`usage_reports`], [`totals`] (all usage of a project or key), [`margins`]
//!   (the operator's part of the list price), [`exports`] (all charges of a month, for other programs) and
//!   [`pricing`].
//! - Budgets: [`budgets`] are set by customers; [`budget_alerts`] notifies users of the thresholds that a
//!   budget has reached, and [`balance_alerts`] of a low balance.
//! - Bookkeeping: [`bookkeeping`] closes months, ends credits, and runs the operators' commands: credits,
//!   payments, void invoices.
//! - Organizations: [`tenant_hooks`] creates the wallet of a new organization, [`first_credit`] gives credit
//!   to the first organization of a verified user, and [`settlement`] closes the books of a deleted
//!   organization.
//! - Checks: [`audit`] recomputes everything, [`recount`] does so again with independent code,
//!   [`scheduled_audit`] runs it regularly, and [`receipts`] finds lost usage. [`retention`] deletes old
//!   usage events. [`metrics`] and [`health`] report on billing itself, and [`usage_refusals`] notifies the
//!   operator's webhooks of usage that isn't counted.
//!
//! [`rules`] holds the rules, which are pure functions; [`store`] holds the SQL.

pub mod audit;
mod audit_events;
pub mod balance_alerts;
pub mod bookkeeping;
pub mod books;
pub mod budget_alerts;
pub mod budgets;
pub mod calls;
pub mod credits;
pub mod decision;
pub mod expired_reservations;
pub mod exports;
pub mod first_credit;
pub mod health;
pub mod invoices;
pub mod limits;
pub mod margins;
pub mod metrics;
pub mod movements;
pub mod pricing;
pub mod receipts;
pub mod recount;
pub mod reservations;
pub mod retention;
pub mod rules;
pub mod scheduled_audit;
pub mod settings;
pub mod settlement;
pub mod store;
pub mod summary;
pub mod tenant_hooks;
pub mod totals;
pub mod usage;
pub mod usage_refusals;
pub mod usage_reports;
pub mod wallets;

use std::ops::Deref;
use std::sync::Arc;

use crate::books::Books;
use call_log::CallLog;
use catalog::CurrentCatalog;
use cluster::clock_guard::ClockGuard;
use cluster::feed::Feed;
use db::Db;
use kernel::clock::Clock;
use kernel::random::Random;

use metrics::Counters;
use rules::credit_limits::DemoCredit;
use settings::{AuditSettings, ExportSettings, Settings};
use usage_refusals::UsageRefusals;

/// The handle of billing. Cloning it is cheap.
#[derive(Clone)]
pub struct Billing(Arc<(Db, Parts)>);

/// The parts of [`Billing`].
pub struct Parts {
    pub clock: Clock,
    /// Decides whether the clock can be trusted.
    pub clock_guard: Arc<ClockGuard>,
    pub random: Random,
    /// The change feed, which invalidates data in memory.
    pub feed: Arc<Feed>,
    pub catalog: Arc<CurrentCatalog>,
    /// The write queue.
    pub books: Books,
    /// The log of model calls.
    pub call_log: CallLog,
    pub metrics: Counters,
    /// Refused usage, for the operator's webhooks.
    pub refusals: UsageRefusals,
    /// Table `billing` of the configuration.
    pub settings: Settings,
    /// Table `audit` of the configuration.
    pub audit: AuditSettings,
    /// Table `exports` of the configuration.
    pub exports: ExportSettings,
}

impl Billing {
    pub fn new(db: Db, parts: Parts) -> Self {
        Self(Arc::new((db, parts)))
    }

    /// Returns the amount that first organizations can currently spend on the built-in demo.
    pub fn demo_credit(&self) -> DemoCredit {
        DemoCredit::of(self.catalog.is_demo(), self.settings.credit_limit)
    }

    /// Returns the database; only operations of this crate open transactions.
    pub(crate) fn db(&self) -> &Db {
        &self.0.0
    }
}

impl Deref for Billing {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0.1
    }
}
