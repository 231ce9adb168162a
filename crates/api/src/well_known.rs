//! `GET /.well-known/jwks.json`: the public signing keys (RFC 7517).

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::gate::Visitor;
use accounts::Accounts;
use kernel::error::Error;
use web::input::NoInput;
use web::reply::Cacheable;
use web::route::Operation;

/// A set of public keys. Its format is defined by RFC 7517 and RFC 8037.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct SigningKeys(Value);

impl JsonSchema for SigningKeys {
    fn schema_name() -> Cow<'static, str> {
        "SigningKeys".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let members = [
            ("kty", "The kind of key, always `OKP`."),
            ("crv", "The curve, always `Ed25519`."),
            ("use", "Always `sig`: the key verifies signatures."),
            ("alg", "The algorithm of signatures, always `EdDSA`."),
            ("kid", "The id of the key, which the header of a token names."),
            ("x", "The public key, as base64url."),
        ];
        let names = members.map(|(name, _)| name);
        let texts =
            members.map(|(name, text)| (name.to_owned(), json!({"type": "string", "description": text})));
        let texts: Map<_, _> = texts.into_iter().collect();
        let key = json!({"type": "object", "title": "SigningKey", "required": names, "properties": texts});
        let keys =
            json!({"type": "array", "description": "The keys that tokens are signed with.", "items": key});
        json_schema!({
            "type": "object",
            "description": "A set of public keys (RFC 7517).",
            "required": ["keys"],
            "properties": {"keys": keys},
        })
    }
}

pub const JWKS: Operation = Operation::new("get_signing_keys");

/// Get the keys that tokens are signed with.
///
/// Caches may keep the document for five minutes. A client that sees an unknown `kid` should fetch the
/// document again, because new keys are used immediately.
pub async fn jwks(accounts: Accounts, _: Visitor, _: NoInput) -> Result<Cacheable<SigningKeys>, Error> {
    Ok(Cacheable { data: SigningKeys(accounts.keyset().await?.jwks()), max_age_s: 300 })
}
