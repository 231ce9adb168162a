//! `GET /.well-known/jwks.json`: the public halves of the signing keys (RFC 7517).

use crate::access::Visitor;
use crate::app::App;
use crate::error::Error;
use crate::input::Nothing;
use crate::reply::Bare;

/// The keys that our tokens can be checked with.
pub async fn jwks(app: App, _: Visitor, _: Nothing) -> Result<Bare<serde_json::Value>, Error> {
    Ok(Bare(app.signing_keys.keyset(&app).await?.jwks()))
}
