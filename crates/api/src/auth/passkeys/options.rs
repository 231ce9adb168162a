//! POST /v1/auth/passkeys/options

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::Value;

use crate::gate::SessionScope;
use accounts::{Accounts, passkeys};
use kernel::error::{Code, Error};
use web::input::NoInput;
use web::reply::{Enveloped, private};
use web::route::Operation;

/// The options of a WebAuthn call in the browser, with the members that WebAuthn defines.
#[derive(Serialize)]
#[serde(transparent)]
struct PublicKey(Value);

impl JsonSchema for PublicKey {
    fn schema_name() -> Cow<'static, str> {
        "PublicKeyOptions".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "additionalProperties": true})
    }
}

/// The options of the browser call that creates or uses a passkey.
#[derive(Serialize, JsonSchema)]
pub struct PasskeyOptions {
    /// The options of `navigator.credentials.create` or `navigator.credentials.get`, in their JSON form.
    public_key: PublicKey,
    /// A value that is sent back with the browser's response. It can be used once, within five minutes.
    ceremony: String,
}

impl From<passkeys::Options> for PasskeyOptions {
    fn from(options: passkeys::Options) -> Self {
        Self { public_key: PublicKey(options.public_key), ceremony: options.ceremony }
    }
}

pub const CREATE: Operation = Operation {
    errors: &[Code::LimitReached, Code::PasskeysDisabled],
    ..Operation::new("create_passkey_options")
};

/// Start adding a passkey.
///
/// Returns the input of `PublicKeyCredential.parseCreationOptionsFromJSON`. Requires a session in which the
/// user recently confirmed their identity.
pub async fn create(
    accounts: Accounts,
    scope: SessionScope,
    _: NoInput,
) -> Result<Enveloped<PasskeyOptions>, Error> {
    Ok(private(passkeys::start(&accounts, scope.session()).await?.into()))
}
