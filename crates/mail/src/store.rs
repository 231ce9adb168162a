//! The SQL of e-mail.

pub mod mail_counters;
pub mod outbox;
