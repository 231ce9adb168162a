//! The state that replicas share through the database.
//!
//! * [`changes`] are recorded by every function that writes a row that replicas cache. [`feed`] follows the
//!   changes of other replicas, and [`epochs`] decides whether a cached row is still current. The
//!   [`heartbeat`] proves that changes are read from the database in use.
//! * [`clock_guard`] compares this machine's clock with the database's and with the time at which the service
//!   last ran; [`clock_trust`] has the rules.
//! * [`leases`] ensure that only one replica at a time runs a job. [`store`] has the SQL.

pub mod changes;
pub mod clock_guard;
pub mod clock_trust;
pub mod epochs;
pub mod feed;
pub mod heartbeat;
pub mod leases;
pub mod store;
