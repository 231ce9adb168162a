//! New events of a transaction.

use std::ops::Deref;

use super::operations::CallCost;
use crate::rules::events::Refusal;
use crate::store::usage::recording::RatedEvent;
use call_log::entries::Course;
use kernel::clock::Month;
use kernel::ids::ReservationId;

/// A new event.
pub(super) struct CountedEvent<'a> {
    pub(super) event: FinalEvent<'a>,
    /// The month in which the event is billed; for a correction, the month of the corrected event.
    pub(super) billed_month: Month,
    pub(super) reservation_id: Option<ReservationId>,
    /// The operator's cost of the call.
    pub(super) cost: Option<&'a CallCost>,
    /// The course of a call of the gateway, for the log.
    pub(super) course: Option<&'a Course>,
}

/// A rated event in a compact form, because a batch has many of them.
pub(super) enum FinalEvent<'a> {
    AsReported(&'a RatedEvent),
    /// A correction, completed from the event that it corrects.
    Completed(Box<RatedEvent>),
}

impl Deref for FinalEvent<'_> {
    type Target = RatedEvent;

    fn deref(&self) -> &RatedEvent {
        match self {
            Self::AsReported(event) => event,
            Self::Completed(event) => event,
        }
    }
}

/// The outcome of the first event with a key.
pub(super) enum Verdict<'a> {
    New(FinalEvent<'a>, Month),
    /// An event with this payload hash was recorded before.
    Stored([u8; 32]),
    Refused(Refusal),
}
