//! The operations of the queue, and their answers.

use super::call_costs::CallCost;
use crate::rules::events::Refusal;
use crate::settings::Settings;
use crate::store::call_progress::Progress;
use crate::store::reservations::NewReservation;
use crate::store::usage::recording::RatedEvent;
use kernel::clock::{MINUTE_MS, SECOND_MS, Time};
use kernel::ids::{OrganizationId, ReservationId};
use kernel::money::Nano;

/// An operation. It is done completely or not at all.
#[derive(Debug)]
pub enum Operation {
    /// The usage events of one request.
    Record(Vec<UsageEvent>),
    /// Reserves money for a call, if the balance and the model's concurrency limit allow it.
    Reserve {
        new: NewReservation,
        /// Maximum number of concurrent calls to the model, per organization.
        max_concurrent: u32,
        lifetime: Lifetime,
    },
    /// Extends a reservation to a whole lifetime from now.
    Extend(Extension),
    /// Ends a reservation.
    Release(ReservationId),
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

/// The extension of a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extension {
    pub id: ReservationId,
    pub lifetime: Lifetime,
    /// The tokens of the call until now; `None` keeps the stored ones.
    pub progress: Option<Progress>,
}

/// A usage event, with the reservation that it captures.
#[derive(Clone, Debug)]
pub struct UsageEvent {
    /// The event. The day and the price of a correction are found when it is recorded.
    pub event: RatedEvent,
    pub reservation_id: Option<ReservationId>,
    /// The operator's cost of the call; `None` if it isn't known, or if another event has it.
    pub cost: Option<Box<CallCost>>,
}

/// The answer to an operation, by its kind.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The outcome of each event, in the order of the events.
    Recorded(Vec<Outcome>),
    Reserved(Result<CallReservation, ReserveError>),
    /// The reservation, if it existed and wasn't about to be captured.
    Extended(Option<Reservation>),
    /// `true` if the reservation existed.
    Released(bool),
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
    /// An earlier request with the same id made it.
    pub is_repeated: bool,
    /// The amount that the organization can still spend, including its credit limit; zero if that wasn't looked
    /// up.
    pub left: Nano,
}

/// The reason why nothing was reserved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReserveError {
    /// The request id belongs to another call.
    RequestIdConflict,
    /// This many calls are in progress, which is the maximum.
    ConcurrencyLimit(u32),
    /// The balance is too low.
    InsufficientFunds {
        /// The posted balance, less what is reserved.
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

impl Operation {
    /// Returns the events of the operation.
    pub fn events(&self) -> &[UsageEvent] {
        match self {
            Self::Record(events) => events,
            Self::Reserve { .. } | Self::Extend(_) | Self::Release(_) => &[],
        }
    }

    /// Returns the organization that the operation belongs to; `None` if it has events of several, or only names a
    /// reservation.
    pub fn organization_id(&self) -> Option<OrganizationId> {
        match self {
            Self::Record(events) => {
                let mut payers = events.iter().map(|event| event.event.payer.organization_id);
                let first = payers.next()?;
                payers.all(|other| other == first).then_some(first)
            }
            Self::Reserve { new, .. } => Some(new.organization_id),
            Self::Extend(_) | Self::Release(_) => None,
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
}
