//! SQL.

pub mod mail_counters;
pub mod outbox;
