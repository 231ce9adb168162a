//! Rules of the log, as pure functions.

pub mod clients;
pub mod histograms;
