//! Usage: [`recording`] stores events, [`days`] adds them to daily rows, and [`sums`] and [`totals`] to the sums of these
//! rows. [`reports`] reads daily rows and sums; [`day_parts`] reads what rows count beside tokens;
//! [`costs`] adds what calls cost the operator, and reads it; [`retention`] deletes old events.

pub mod charges;
pub mod costs;
pub mod day_parts;
pub mod days;
pub mod recording;
pub mod reports;
pub mod retention;
pub mod sums;
pub mod totals;
