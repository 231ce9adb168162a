//! The operations of the queue, and their answers.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::rules::events::Refusal;
use crate::settings::Settings;
use crate::store::call_progress::Progress;
use crate::store::reservations::NewReservation;
use crate::store::usage::costs::CostSums;
use crate::store::usage::recording::RatedEvent;
use call_log::entries::{Course, NewCall};
use kernel::clock::{MINUTE_MS, SECOND_MS, Time};
use kernel::ids::{OrganizationId, ReservationId};
use kernel::money::{Nano, Pico};

/// An operation, whose type determines the type of its answer. It is done completely or not at all.
pub trait Operation {
    type Answer;

    /// Converts the operation to its queued form, with the channel for its answer.
    fn queued(self, answer: Sender<Self::Answer>) -> Queued;
}

/// The usage events of one request. The answer contains one outcome per event, in order.
#[derive(Debug)]
pub struct Record(pub Vec<UsageEvent>);

/// Reserves money for a call, if the balance, the budgets and the model's concurrency limit allow it.
#[derive(Debug)]
pub struct Reserve {
    pub new: NewReservation,
    /// Maximum number of concurrent calls to the model, per organization.
    pub max_concurrent: u32,
    pub lifetime: Lifetime,
}

/// Ends a reservation. The answer is `true` if it existed.
#[derive(Clone, Debug)]
pub struct Release {
    pub id: ReservationId,
    /// The call of the gateway that costs nothing, which is logged if its reservation existed.
    pub call: Option<Box<NewCall>>,
}

/// The lifetime of a reservation after it was made or extended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lifetime {
    /// `billing.reservation_minutes`: an external server makes the call, and reports its usage.
    Reported,
    /// `billing.gateway_reservation_seconds`: our own gateway makes the call, and extends it often.
    Gateway,
}

impl Lifetime {
    /// Returns the lifetime in milliseconds.
    pub fn ms(self, settings: &Settings) -> i64 {
        match self {
            Self::Reported => settings.reservation_minutes.saturating_mul(MINUTE_MS),
            Self::Gateway => settings.gateway_reservation_seconds.saturating_mul(SECOND_MS),
        }
    }
}

/// Extends a reservation to a whole lifetime from now. The answer is the reservation, if it existed and
/// wasn't about to be captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extension {
    pub id: ReservationId,
    pub lifetime: Lifetime,
    /// The tokens of the call so far; `None` keeps the stored ones.
    pub progress: Option<Progress>,
}

/// A usage event, with the reservation that it captures.
#[derive(Clone, Debug)]
pub struct UsageEvent {
    /// The event. The day and the price of a correction are determined when it is recorded.
    pub event: RatedEvent,
    pub reservation_id: Option<ReservationId>,
    /// The operator's cost of the call; `None` if it isn't known, or if another event of the call has it.
    pub cost: Option<Box<CallCost>>,
    /// The course of a call of the gateway, for the log.
    pub course: Option<Box<Course>>,
}

/// The operator's cost of a whole call, and its list price, even if the event is only a part of the call's
/// charge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallCost {
    pub upstream: Arc<str>,
    pub prompt_tokens: i64,
    pub completion_tokens: i64,
    /// The list price.
    pub amount: Pico,
    pub cost: Pico,
}

impl CallCost {
    /// Returns the cost as sums of one request.
    pub(super) fn sums(&self) -> CostSums {
        let Self { prompt_tokens, completion_tokens, amount, cost, .. } = *self;
        CostSums { requests: 1, prompt_tokens, completion_tokens, amount, cost }
    }
}

/// The outcome of an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The event is counted.
    New,
    /// The same event was counted before.
    Duplicate,
    /// Another event has this id.
    Conflict,
    /// The event can't be counted.
    Refused(Refusal),
}

/// Money reserved for a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reservation {
    /// The id by which it is captured, extended and released.
    pub id: ReservationId,
    /// In the organization's currency.
    pub amount: Nano,
    /// The end of its lifetime.
    pub expires_at: Time,
}

/// A reservation, as the answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallReservation {
    pub reservation: Reservation,
    /// `true` if an earlier request with the same id made the reservation.
    pub is_repeated: bool,
    /// The amount that the organization can still spend, including its credit limit; zero if it wasn't looked
    /// up.
    pub left: Nano,
}

impl CallReservation {
    /// Returns the amount that was reserved by this request.
    pub fn new_amount(&self) -> i128 {
        if self.is_repeated { 0 } else { self.reservation.amount.units() }
    }
}

/// The reason why nothing was reserved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReserveError {
    /// The request id belongs to another call.
    RequestIdConflict,
    /// All calls that the concurrency limit, which is this number, allows are in progress.
    ConcurrencyLimit(u32),
    /// The balance is too low.
    InsufficientFunds {
        /// The posted balance minus the reserved amounts.
        available: Nano,
        /// The amount by which the balance may go below zero.
        credit_limit: Nano,
        /// ISO 4217 code.
        currency: String,
    },
    /// A hard budget doesn't cover the call.
    Budget(BudgetRefusal),
}

/// A hard budget that doesn't cover a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BudgetRefusal {
    pub name: String,
    /// The day, the month, or `in all`.
    pub period: String,
    pub limit: Nano,
    /// The remaining limit; negative if more than the limit is used.
    pub left: Nano,
}

impl Operation for Record {
    type Answer = Vec<Outcome>;

    fn queued(self, answer: Sender<Self::Answer>) -> Queued {
        Queued::Record(self, answer)
    }
}

impl Operation for Reserve {
    type Answer = Result<CallReservation, ReserveError>;

    fn queued(self, answer: Sender<Self::Answer>) -> Queued {
        Queued::Reserve(self, answer)
    }
}

impl Operation for Extension {
    type Answer = Option<Reservation>;

    fn queued(self, answer: Sender<Self::Answer>) -> Queued {
        Queued::Extend(self, answer)
    }
}

impl Operation for Release {
    type Answer = bool;

    fn queued(self, answer: Sender<Self::Answer>) -> Queued {
        Queued::Release(self, answer)
    }
}

/// The channel to a caller. If the operation was displaced from the full queue, the error is
/// [`NotDone::Displaced`].
pub type Sender<T> = oneshot::Sender<Result<T, NotDone>>;

/// The reason why an operation has no answer.
#[derive(Clone, Debug)]
pub enum NotDone {
    /// The queue was full, and an operation of an organization with fewer queued operations displaced this
    /// one.
    Displaced,
    /// The transaction failed.
    Failed(db::Error),
}

/// A queued operation, with the channel for its answer.
#[derive(Debug)]
pub enum Queued {
    Record(Record, Sender<Vec<Outcome>>),
    Reserve(Reserve, Sender<Result<CallReservation, ReserveError>>),
    Extend(Extension, Sender<Option<Reservation>>),
    Release(Release, Sender<bool>),
}

impl Queued {
    /// Returns the events of the operation.
    pub fn events(&self) -> &[UsageEvent] {
        match self {
            Self::Record(Record(events), _) => events,
            Self::Reserve(..) | Self::Extend(..) | Self::Release(..) => &[],
        }
    }

    /// Returns the organization that the operation belongs to; `None` if it has events of several
    /// organizations, or contains only the id of a reservation.
    pub fn organization_id(&self) -> Option<OrganizationId> {
        match self {
            Self::Record(Record(events), _) => {
                let mut payers = events.iter().map(|event| event.event.payer.organization_id);
                let first = payers.next()?;
                payers.all(|other| other == first).then_some(first)
            }
            Self::Reserve(Reserve { new, .. }, _) => Some(new.organization_id),
            Self::Extend(..) | Self::Release(..) => None,
        }
    }

    /// Returns the approximate memory of the operation, in bytes.
    pub fn memory(&self) -> usize {
        let texts = |event: &RatedEvent| {
            let corrects = event.corrects.as_ref().map_or(0, |text| text.len());
            event.source.len() + event.event_id.len() + event.model.len() + corrects
        };
        let events = self.events().iter().map(|event| size_of::<UsageEvent>() + texts(&event.event));
        size_of::<Self>() + events.sum::<usize>()
    }

    /// Sends the caller the reason why the operation wasn't done.
    pub fn fail(self, reason: NotDone) {
        match self {
            Self::Record(_, caller) => send(caller, Err(reason)),
            Self::Reserve(_, caller) => send(caller, Err(reason)),
            Self::Extend(_, caller) => send(caller, Err(reason)),
            Self::Release(_, caller) => send(caller, Err(reason)),
        }
    }
}

/// Sends an answer to a caller. Does nothing if the caller has disconnected.
pub fn send<T>(caller: Sender<T>, answer: Result<T, NotDone>) {
    drop(caller.send(answer));
}

/// The operations of one transaction, by their kinds.
#[derive(Default, Debug)]
pub struct Batch<'a> {
    pub records: Vec<&'a [UsageEvent]>,
    pub reserves: Vec<&'a Reserve>,
    pub extensions: Vec<Extension>,
    pub releases: Vec<&'a Release>,
}

impl<'a> Batch<'a> {
    /// Returns a batch of these operations.
    pub fn of(operations: impl IntoIterator<Item = &'a Queued>) -> Self {
        let mut batch = Self::default();
        for operation in operations {
            match operation {
                Queued::Record(Record(events), _) => batch.records.push(events),
                Queued::Reserve(reserve, _) => batch.reserves.push(reserve),
                Queued::Extend(extension, _) => batch.extensions.push(*extension),
                Queued::Release(release, _) => batch.releases.push(release),
            }
        }
        batch
    }

    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.records.len() + self.reserves.len() + self.extensions.len() + self.releases.len()
    }
}

/// The answers to a batch, by kind of operation. Each list is in the order of the operations.
#[derive(Debug)]
pub struct Answers {
    pub recorded: Vec<Vec<Outcome>>,
    pub reserved: Vec<Result<CallReservation, ReserveError>>,
    pub extended: Vec<Option<Reservation>>,
    pub released: Vec<bool>,
}

impl Answers {
    /// Sends each answer to the caller of its operation.
    pub fn send(self, operations: impl IntoIterator<Item = Queued>) {
        let Self { recorded, reserved, extended, released } = self;
        let (mut recorded, mut reserved) = (recorded.into_iter(), reserved.into_iter());
        let (mut extended, mut released) = (extended.into_iter(), released.into_iter());
        for operation in operations {
            match operation {
                Queued::Record(_, caller) => send_next(caller, &mut recorded),
                Queued::Reserve(_, caller) => send_next(caller, &mut reserved),
                Queued::Extend(_, caller) => send_next(caller, &mut extended),
                Queued::Release(_, caller) => send_next(caller, &mut released),
            }
        }
    }
}

/// Sends the next answer. A batch has as many answers as operations of each kind.
fn send_next<T>(caller: Sender<T>, answers: &mut impl Iterator<Item = T>) {
    let answer = answers.next();
    debug_assert!(answer.is_some(), "an operation has no answer");
    // Without an answer, the channel is closed and the caller gets an internal error.
    if let Some(answer) = answer {
        send(caller, Ok(answer));
    }
}
