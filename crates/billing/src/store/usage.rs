//! Usage: events are recorded in [`recording`] and added to their days in [`days`], from which every reading is made
//! ([`reports`], [`totals`]).

pub mod days;
pub mod recording;
pub mod reports;
pub mod retention;
pub mod totals;
