//! Pure rules, without I/O.

pub mod free_usernames;
pub mod linking;
pub mod one_time_codes;
pub mod password;
pub mod password_changes;
pub mod throttling;
pub mod user_agents;
