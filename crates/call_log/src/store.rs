//! The SQL of the log.

pub mod calls;
pub mod days;
pub mod hours;
pub mod names;
pub mod retention;
