//! SQL.

pub mod job_leases;
pub mod service_clock;
