//! `GET /.well-known/jwks.json`: the public signing keys (RFC 7517).

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::Value;

use crate::gate::Visitor;
use accounts::Accounts;
use kernel::error::Error;
use web::input::NoInput;
use web::reply::Cacheable;

/// A set of public keys. Its format is defined by RFC 7517 and RFC 8037.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct SigningKeys(Value);

impl JsonSchema for SigningKeys {
    fn schema_name() -> Cow<'static, str> {
        "SigningKeys".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let members = ["kty", "crv", "use", "alg", "kid", "x"];
        let texts: serde_json::Map<_, _> =
            members.iter().map(|name| ((*name).to_owned(), serde_json::json!({"type": "string"}))).collect();
        let key = serde_json::json!({"type": "object", "title": "SigningKey", "required": members, "properties": texts});
        json_schema!({
            "type": "object",
            "description": "A set of public keys (RFC 7517).",
            "required": ["keys"],
            "properties": {"keys": {"type": "array", "items": key}},
        })
    }
}

/// Get the keys that tokens are signed with.
///
/// Caches may keep it for five minutes. A client that meets a `kid` that its copy lacks reads it again: a key
/// signs as soon as it is made.
pub async fn jwks(accounts: Accounts, _: Visitor, _: NoInput) -> Result<Cacheable<SigningKeys>, Error> {
    Ok(Cacheable { data: SigningKeys(accounts.keyset().await?.jwks()), max_age_s: 300 })
}
