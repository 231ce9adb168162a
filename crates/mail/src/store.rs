//! The SQL of mail.

pub mod mail_counters;
pub mod outbox;
