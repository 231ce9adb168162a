//! Usage: [`recording`] stores events, [`days`] adds them to daily rows, and [`sums`] and [`totals`] to the
//! sums of these rows. [`reports`] reads daily rows and sums; [`day_parts`] reads the components other than
//! tokens; [`costs`] adds and reads the operator's costs of calls; [`retention`] deletes old events.

mod accumulation;
pub mod charges;
pub mod costs;
pub mod day_parts;
pub mod days;
pub mod recording;
pub mod reports;
pub mod retention;
pub mod sum_keys;
pub mod sums;
pub mod totals;
