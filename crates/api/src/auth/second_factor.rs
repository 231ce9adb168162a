//! GET /v1/auth/second-factor

use schemars::JsonSchema;
use serde::Serialize;

use crate::gate::SessionScope;
use accounts::{Accounts, second_factor};
use kernel::clock::Time;
use kernel::error::Error;
use web::input::NoInput;
use web::reply::{Enveloped, private};
use web::route::Operation;

/// The second factor of an account.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SecondFactor {
    /// The authenticator app; null if the account has none.
    totp: Option<Totp>,
    /// The number of passkeys.
    passkeys: i64,
    /// The number of remaining recovery codes.
    recovery_codes_left: i64,
    /// `true` if a login with the password also requires a code.
    asked_after_password: bool,
}

/// An authenticator app.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Totp {
    /// The time when the current app was confirmed.
    since: Time,
}

pub const READ: Operation = Operation::new("get_second_factor");

/// Get the caller's second factor.
pub async fn read(
    accounts: Accounts,
    scope: SessionScope,
    _: NoInput,
) -> Result<Enveloped<SecondFactor>, Error> {
    let found = second_factor::read(&accounts, scope.user_id()).await?;
    Ok(private(SecondFactor {
        totp: found.totp_since.map(|since| Totp { since }),
        passkeys: found.passkeys,
        recovery_codes_left: found.recovery_codes_left,
        asked_after_password: found.is_asked_for(),
    }))
}
