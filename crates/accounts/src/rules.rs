//! Pure rules, without I/O: passwords, throttling, and the stored description of a client.

pub mod free_usernames;
pub mod linking;
pub mod one_time_codes;
pub mod password;
pub mod password_changes;
pub mod throttling;
pub mod user_agents;
