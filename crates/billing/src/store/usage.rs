//! Usage: [`recording`] stores events, and [`days`] adds them to daily rows, from which [`reports`] and
//! [`totals`] are read. [`retention`] deletes old events.

pub mod charges;
pub mod days;
pub mod recording;
pub mod reports;
pub mod retention;
pub mod totals;
