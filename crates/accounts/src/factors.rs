//! The factors in addition to the password: passkeys, one-time codes, and recovery codes.

pub mod passkeys;
pub mod second_factor;
pub mod seeds;
