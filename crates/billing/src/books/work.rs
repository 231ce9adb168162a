//! What the books are asked for, and what they answer.

use crate::rules::events::Refusal;
use crate::store::reservations::NewReservation;
use crate::store::usage::recording::RatedEvent;
use kernel::clock::Time;
use kernel::ids::ReservationId;
use kernel::money::Nano;

/// A piece of work: done as a whole or not at all.
#[derive(Debug)]
pub enum Work {
    /// The usage events of one request.
    Record(Vec<UsageEvent>),
    /// Sets money aside for a call, if that much is left and the model takes so many calls at a time.
    Reserve {
        /// What for.
        new: NewReservation,
        /// Calls at the same time that the model takes, for each organization.
        most_at_once: u32,
    },
    /// Lets a reservation live on for a whole lifetime.
    Extend(ReservationId),
    /// Ends a reservation.
    Release(ReservationId),
}

/// An event to be counted, and the reservation that it captures.
#[derive(Clone, Debug)]
pub struct UsageEvent {
    /// The event; of a correction, its day and its price are found when it is recorded.
    pub event: RatedEvent,
    /// Which reservation its money was set aside with.
    pub reservation_id: Option<ReservationId>,
}

/// What came of a piece of work, in the order of [`Work`]'s kinds.
#[derive(Clone, Debug)]
pub enum Answer {
    /// One outcome an event, in their order.
    Recorded(Vec<Outcome>),
    /// Reserved or not.
    Reserved(Result<Reserving, Refused>),
    /// The reservation, if it is still there.
    Extended(Option<Reservation>),
    /// Whether it was there.
    Released(bool),
}

/// What became of an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is new and counts.
    New,
    /// The same event was there already.
    Duplicate,
    /// Another event has this id.
    Conflict,
    /// It can't be counted.
    Refused(Refusal),
}

/// Money set aside for a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reservation {
    /// By which it is captured, extended and released.
    pub id: ReservationId,
    /// How much, in the organization's currency.
    pub amount: Nano,
    /// When it ends by itself.
    pub expires_at: Time,
}

/// Money that is set aside for a call now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserving {
    /// The reservation.
    pub reservation: Reservation,
    /// `true` if the same question made it before.
    pub is_repeated: bool,
}

/// Why nothing is set aside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// A reservation for another call has this request id.
    RequestId,
    /// So many calls are under way already.
    Concurrency(u32),
    /// That much isn't left.
    Money {
        /// What is posted less what is reserved.
        available: Nano,
        /// How far it may go below zero.
        credit_limit: Nano,
        /// ISO 4217 code.
        currency: String,
    },
}

impl Work {
    /// The events in it.
    pub fn events(&self) -> &[UsageEvent] {
        match self {
            Self::Record(events) => events,
            Self::Reserve { .. } | Self::Extend(_) | Self::Release(_) => &[],
        }
    }

    /// What it takes in memory, in bytes, about.
    pub fn memory(&self) -> usize {
        let texts = |event: &RatedEvent| {
            let corrects = event.corrects.as_ref().map_or(0, |text| text.len());
            event.source.len() + event.event_id.len() + event.model.len() + corrects
        };
        let events = self.events().iter().map(|event| size_of::<UsageEvent>() + texts(&event.event));
        size_of::<Self>() + events.sum::<usize>()
    }
}
