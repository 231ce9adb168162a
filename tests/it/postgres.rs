//! What only a PostgreSQL has: TLS on the way to it, and a standby for reports.

mod replica;
mod tls;

/// The name of the database that a URL ends with.
fn database_of(url: &str) -> &str {
    url.rsplit('/').next().unwrap()
}
