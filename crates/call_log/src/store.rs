//! The SQL of the log.

pub mod calls;
pub mod days;
pub mod hours;
pub mod names;
pub mod reading;
pub mod retention;
pub mod sums;
