//! What only a PostgreSQL has: TLS on the way to it, a standby for reports, and what goes wrong with it under load.

mod cuts;
mod failover;
mod full;
mod load;
mod replica;
mod restarts;
mod settings;
mod slow;
mod tls;
mod wire;

/// The name of the database that a URL ends with.
fn database_of(url: &str) -> &str {
    url.rsplit('/').next().unwrap()
}
