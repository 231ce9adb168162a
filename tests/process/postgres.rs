//! Tests of PostgreSQL only: TLS connections, a standby for reports, the primary among several servers, and
//! faults under load.

mod cuts;
mod failover;
mod full;
mod load;
mod pooler;
mod primary;
mod replica;
mod restarts;
mod settings;
mod slow;
mod tls;
mod wire;

/// Returns the name of the database at the end of a URL.
fn database_of(url: &str) -> &str {
    url.rsplit('/').next().unwrap().split('?').next().unwrap()
}
