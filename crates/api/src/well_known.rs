//! `GET /.well-known/jwks.json`: the public signing keys (RFC 7517).

use crate::gate::Visitor;
use accounts::Accounts;
use kernel::error::Error;
use web::input::NoInput;
use web::reply::Cacheable;

/// Get the keys that tokens are signed with.
///
/// Caches may keep it for five minutes. A client that meets a `kid` that its copy lacks reads it again: a key
/// signs as soon as it is made.
pub async fn jwks(accounts: Accounts, _: Visitor, _: NoInput) -> Result<Cacheable<serde_json::Value>, Error> {
    Ok(Cacheable { data: accounts.keyset().await?.jwks(), max_age_s: 300 })
}
