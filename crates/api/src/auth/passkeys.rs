//! `/v1/auth/passkeys` and `…/{passkey_id}` (docs/contract/accounts.md#passkeys).

pub mod options;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::gate::{OwnPasskeyScope, SessionScope};
use accounts::Accounts;
use accounts::passkeys::{self as operations, New, Signed};
use accounts::rules::one_time_codes::RecoveryCode;
use input::objects::AnyObject;
use input::record;
use input::types::{Name, Text};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::PasskeyId;
use web::input::{Body, NoInput};
use web::reply::{Enveloped, ok, private};
use web::route::Operation;

use super::Message;

/// A passkey.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Passkey {
    /// The id of the passkey.
    id: PasskeyId,
    /// The name chosen by the user.
    name: String,
    /// The time when the passkey was added.
    created_at: Time,
    /// The time when the passkey was last used; null if never.
    last_used_at: Option<Time>,
    /// `true` if the passkey is synced to other devices, as last reported by its authenticator.
    synced: bool,
}

impl From<operations::Passkey> for Passkey {
    fn from(row: operations::Passkey) -> Self {
        Self {
            id: row.id,
            name: row.name,
            created_at: row.created_at,
            last_used_at: row.last_used_at,
            synced: row.is_synced,
        }
    }
}

/// The passkeys of an account.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PasskeyList {
    /// The passkeys, oldest first.
    passkeys: Vec<Passkey>,
}

pub const LIST: Operation = Operation::new("list_passkeys");

/// List the caller's passkeys.
pub async fn list(
    accounts: Accounts,
    scope: SessionScope,
    _: NoInput,
) -> Result<Enveloped<PasskeyList>, Error> {
    let rows = operations::list(&accounts, scope.user_id()).await?;
    Ok(private(PasskeyList { passkeys: rows.into_iter().map(Into::into).collect() }))
}

record! {
    /// A browser's response to the options of a new passkey.
    #[derive(Debug)]
    pub struct CreatePasskey in Api {
        /// The value that was returned with the options.
        ceremony: Text<4096> = required,
        /// The browser's response, as written by `PublicKeyCredential.toJSON`.
        credential: AnyObject = required,
        /// A name that helps the owner recognize the passkey.
        name: Name = required,
        /// `true` if a login with the password also requires a second factor from then on; by default for the
        /// first passkey.
        asked_after_password: Option<bool> = optional,
    }
}

/// A passkey that was added.
#[derive(Serialize, JsonSchema)]
pub struct PasskeyCreated {
    /// The passkey.
    passkey: Passkey,
    /// Ten codes, each of which can be used once instead of the passkey after the password; null if the
    /// password alone is enough, or if the account already has codes.
    recovery_codes: Option<Vec<String>>,
}

pub const CREATE: Operation = Operation {
    errors: &[Code::ChallengeExpired, Code::InvalidCredential, Code::LimitReached, Code::PasskeysDisabled],
    example: r#"{
  "ceremony": "AX0rT2VuZQ",
  "credential": {
    "type": "public-key",
    "id": "3q2-7w",
    "rawId": "3q2-7w",
    "response": {
      "clientDataJSON": "eyJ0eXBlIjoid2ViYXV0aG4",
      "attestationObject": "o2NmbXRkbm9uZQ"
    }
  },
  "name": "Laptop"
}"#,
    ..Operation::new("create_passkey")
};

/// Add a passkey.
///
/// A passkey lets the user log in without a password. With `asked_after_password`, a login with the password
/// also requires a second factor from then on, and every other session of the account ends.
pub async fn create(
    accounts: Accounts,
    scope: SessionScope,
    Body(body): Body<CreatePasskey>,
) -> Result<Enveloped<PasskeyCreated>, Error> {
    let CreatePasskey { ceremony, credential, name, asked_after_password } = &body;
    let new = New {
        signed: Signed { ceremony: &ceremony.0, credential: &credential.0 },
        name: &name.display,
        asks_after_password: *asked_after_password,
    };
    let added = operations::add(&accounts, scope.trail(), scope.session(), &new).await?;
    let recovery_codes = added.recovery_codes.map(|codes| codes.iter().map(RecoveryCode::expose).collect());
    Ok(private(PasskeyCreated { passkey: added.passkey.into(), recovery_codes }))
}

record! {
    /// A merge patch of a passkey.
    #[derive(Debug)]
    pub struct UpdatePasskey in Api {
        /// The name, of 1 to 100 characters.
        pub name: Option<Name> = change,
    }
}

/// The changed passkey.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OnePasskey {
    /// The passkey.
    passkey: Passkey,
}

pub const UPDATE: Operation = Operation {
    example: r#"{
  "name": "Work laptop"
}"#,
    ..Operation::new("update_passkey")
};

/// Change a passkey of the caller.
pub async fn update(
    accounts: Accounts,
    scope: OwnPasskeyScope,
    Body(body): Body<UpdatePasskey>,
) -> Result<Enveloped<OnePasskey>, Error> {
    let (caller, name) = (scope.caller(), body.name.as_ref().map(|name| name.display.as_str()));
    let passkey =
        operations::rename(&accounts, caller.trail(), caller.session(), scope.named(), name).await?;
    Ok(private(OnePasskey { passkey: passkey.into() }))
}

pub const DELETE: Operation =
    Operation { errors: &[Code::LastCredential], ..Operation::new("delete_passkey") };

/// Remove a passkey of the caller.
///
/// Removing the last factor also deletes the recovery codes, and a login then requires only the password.
pub async fn delete(
    accounts: Accounts,
    scope: OwnPasskeyScope,
    _: NoInput,
) -> Result<Enveloped<Message>, Error> {
    let caller = scope.caller();
    let is_password_enough =
        operations::remove(&accounts, caller.trail(), caller.session(), scope.named()).await?;
    let message = match is_password_enough {
        true => "The passkey is removed. You can now log in with your password alone.",
        false => "The passkey is removed. Logging in with your password still requires a second factor.",
    };
    Ok(ok(Message { message: message.to_owned() }))
}
