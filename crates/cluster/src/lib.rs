//! The state that replicas share through the database.
//!
//! * [`changes`] are written by whoever writes a row on which memory depends; [`feed`] follows those of other replicas,
//!   and [`epochs`] says whether what is held in memory is still true.
//! * [`clock_guard`] compares this machine's clock with the database's and with the time at which the service last ran;
//!   [`clock_trust`] are its rules.
//! * [`leases`] make sure that one replica at a time does a job.

pub mod changes;
pub mod clock_guard;
pub mod clock_trust;
pub mod epochs;
pub mod feed;
pub mod leases;
pub mod store;
