//! Usage: events are recorded in [`recording`] and added to their days in [`days`], from which every reading is made
//! ([`reports`]).

pub mod days;
pub mod recording;
pub mod reports;
pub mod retention;

pub use reports::{PROJECT_TOTALS, Totals, key_totals, project_totals};
