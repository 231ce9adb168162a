//! Payments through Stripe: credit, invoices, saved cards, automatic top-ups, refunds, and disputes
//! (docs/contract/payments.md).
//!
//! - [`payments`] creates and lists payments; [`checkout`] opens Stripe's page for one. A payment's row is
//!   committed before the request to Stripe, and its page is returned only after the row contains the page's
//!   session.
//! - [`forms`] makes one payment per form, however often it's submitted.
//! - [`cards`] saves and detaches an organization's card, [`auto_top_ups`] configures automatic charges, and
//!   [`charging`] makes them.
//! - `stripe_customers` has the customers of organizations at Stripe, and `top_up_state` pauses and resumes
//!   automatic charges.
//! - `taxes` requests the tax on a charge from Stripe, and reads the tax of a payment.
//! - [`inbound`] receives events from Stripe, stores and acknowledges them. [`handling`] processes them by
//!   reading the object from Stripe, since event payloads aren't trusted.
//! - [`settlement`] is the only place that credits money. [`refunds`] and [`disputes`] take it back.
//! - [`comparison`] compares all payments, refunds, disputes, and events with Stripe daily, and [`jobs`] runs
//!   due work.
//! - [`check`] lists the requirements that the Stripe account doesn't meet.
//!
//! [`rules`] contains the pure rules and [`store`] the SQL.

pub mod auto_top_ups;
pub mod cards;
pub mod charging;
pub mod check;
pub mod checkout;
pub mod comparison;
mod counters;
pub mod disputes;
pub mod forms;
pub mod handling;
pub mod inbound;
pub mod jobs;
mod notices;
mod orphans;
pub mod payments;
mod processor;
pub mod refunds;
pub mod rules;
pub mod settings;
pub mod settlement;
pub mod store;
mod stripe_customers;
mod taxes;
mod top_up_state;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::sync::Notify;

use billing::Billing;
use billing::books::booking::Booking;
use cluster::clock_guard::ClockGuard;
use db::{Db, Tx};
use kernel::clock::{Clock, Time};
use kernel::error::{Code, Error};
use kernel::ids::OrganizationId;
use kernel::random::Random;
use metrics::Metrics;
use tenants::Tenants;
use trail::{Action, Event, Trail};

use counters::Counters;
use settings::Settings;

pub use processor::Processor;

/// Handle of payments; cheap to clone.
#[derive(Clone)]
pub struct Payments(Arc<Parts>);

/// The parts of [`Payments`].
pub struct Parts {
    pub(crate) db: Db,
    pub clock: Clock,
    pub(crate) clock_guard: Arc<ClockGuard>,
    pub(crate) random: Random,
    pub(crate) billing: Billing,
    pub(crate) tenants: Tenants,
    pub settings: Settings,
    /// Stripe; `None` if payments are off.
    processor: Option<Processor>,
    /// URL of the pages to which a customer returns from Stripe: the parts before the organization's id, and
    /// between it and the page's name.
    return_url: [String; 2],
    pub(crate) counters: Counters,
    /// Time of the last search for deleted organizations, in Unix milliseconds.
    cleaned_at_ms: AtomicI64,
    wake: Notify,
}

impl Deref for Payments {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// Parts that payments share with other subjects.
pub struct Shared {
    pub db: Db,
    pub clock: Clock,
    pub clock_guard: Arc<ClockGuard>,
    pub random: Random,
    pub billing: Billing,
    pub tenants: Tenants,
    pub metrics: Arc<Metrics>,
    /// URL of the pages to which a customer returns from Stripe: the parts before the organization's id, and
    /// between it and the page's name.
    pub return_url: [String; 2],
}

impl Payments {
    /// Creates a handle with these settings.
    ///
    /// # Errors
    /// A sentence for the operator: a file can't be read.
    pub fn new(shared: Shared, settings: Settings) -> Result<Self, String> {
        let Shared { db, clock, clock_guard, random, billing, tenants, metrics, return_url } = shared;
        let processor = settings.open(&billing.settings.currency)?;
        let counters = Counters::new(&metrics.registered);
        let wake = Notify::new();
        Ok(Self(Arc::new(Parts {
            db,
            clock,
            clock_guard,
            random,
            billing,
            tenants,
            settings,
            processor,
            return_url,
            counters,
            cleaned_at_ms: AtomicI64::new(0),
            wake,
        })))
    }

    /// Returns the Stripe processor.
    ///
    /// # Errors
    /// 403 `payments_disabled`.
    pub(crate) fn processor(&self) -> Result<&Processor, Error> {
        self.processor.as_ref().ok_or_else(|| Code::PaymentsDisabled.into())
    }

    /// Returns `true` if payments are on.
    pub fn is_on(&self) -> bool {
        self.processor.is_some()
    }

    /// Returns the URL of a page to which a customer returns from Stripe, such as `card`.
    pub(crate) fn return_url(&self, organization_id: OrganizationId, page: &str) -> String {
        let [before, between] = &self.return_url;
        format!("{before}{organization_id}{between}{page}")
    }

    /// Returns `true` if the last search for deleted organizations is at least `every_ms` ago.
    pub(crate) fn is_time_to_clean_up(&self, every_ms: i64) -> bool {
        let age = self.clock.now().unix_ms() - self.cleaned_at_ms.load(Ordering::Relaxed);
        !(0..every_ms).contains(&age)
    }

    /// Like [`Self::is_time_to_clean_up`], and also records that a search starts now.
    pub(crate) fn may_clean_up(&self, every_ms: i64) -> bool {
        let is_due = self.is_time_to_clean_up(every_ms);
        if is_due {
            self.cleaned_at_ms.store(self.clock.now().unix_ms(), Ordering::Relaxed);
        }
        is_due
    }

    /// Wakes the job. Called after the commit that makes work due.
    pub(crate) fn notify_one(&self) {
        self.wake.notify_one();
    }

    /// Waits until this replica has work.
    pub async fn notified(&self) {
        self.wake.notified().await;
    }

    /// Returns the context of bookings.
    pub(crate) fn booking<'a>(&'a self, trail: &'a Trail) -> Booking<'a> {
        Booking { billing: &self.billing, trail, now: self.clock.now() }
    }

    /// Adds an audit entry.
    pub(crate) async fn record(
        &self,
        tx: &mut Tx,
        trail: &Trail,
        (action, target): (Action, String),
        organization_id: OrganizationId,
        now: Time,
    ) -> Result<(), db::Error> {
        let event = Event { action, target, organization_id: Some(organization_id) };
        trail::record(tx, trail, &event, now, &self.random).await
    }
}

/// Statements whose plans are checked.
pub mod statements {
    pub use crate::store::auto_top_ups::DUE as TOP_UPS_DUE;
    pub use crate::store::payments::{
        COUNT, DUE, LIST, OPEN_OF_INVOICE, PAID_BETWEEN, TOP_UP_UNDER_WAY, TOPPED_UP_SINCE,
    };
    pub use crate::store::refunds::{DUE as REFUNDS_DUE, OF_PAYMENT};
    pub use crate::store::stripe_events::{DUE as EVENTS_DUE, REMOVE_DONE, STUCK};
    pub use crate::store::stripe_tasks::DUE as TASKS_DUE;
}
