//! Rules of payments, as pure functions.

pub mod declines;
pub mod disputes;
pub mod shares;
pub mod top_ups;
pub mod verification;
