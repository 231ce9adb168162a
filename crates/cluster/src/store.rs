//! The SQL of leases and of the service's clock.

pub mod job_leases;
pub mod service_clock;
