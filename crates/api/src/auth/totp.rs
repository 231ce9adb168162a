//! `/v1/auth/totp` and `…/confirm` (docs/contract/accounts.md#add-an-authenticator-app).

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::gate::SessionScope;
use accounts::rules::one_time_codes::RecoveryCode;
use accounts::{Accounts, second_factor};
use input::record;
use input::types::Text;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use web::input::{Body, NoInput};
use web::reply::{Enveloped, ok, private};
use web::route::Operation;

use super::Message;

/// The settings for an authenticator app.
#[derive(Serialize, JsonSchema)]
pub struct NewTotp {
    /// The secret, in base32, for typing into the app.
    secret: String,
    /// The secret as a link, for a QR code that the app scans.
    otpauth_url: String,
    /// The time by which the first code must be sent.
    expires_at: Time,
}

pub const CREATE: Operation = Operation { errors: &[Code::TotpDisabled], ..Operation::new("create_totp") };

/// Start adding an authenticator app.
///
/// Nothing changes until the first code from the app is sent, within ten minutes. The new app then replaces
/// the existing app, if any. Requires a session in which the user recently confirmed their identity.
pub async fn create(
    accounts: Accounts,
    scope: SessionScope,
    _: NoInput,
) -> Result<Enveloped<NewTotp>, Error> {
    let enrolment = second_factor::start_totp(&accounts, scope.session()).await?;
    Ok(private(NewTotp {
        secret: enrolment.expose_secret(),
        otpauth_url: enrolment.expose_url().to_owned(),
        expires_at: enrolment.expires_at,
    }))
}

record! {
    /// The first code from an authenticator app.
    #[derive(Debug)]
    pub struct ConfirmTotp in Api {
        /// The code shown in the app.
        pub code: Text<64> = required,
    }
}

/// The recovery codes of an account's first second factor.
#[derive(Serialize, JsonSchema)]
pub struct TotpConfirmed {
    /// Ten codes, each of which can replace the app once; null if the account already has codes.
    recovery_codes: Option<Vec<String>>,
}

pub const CONFIRM: Operation = Operation {
    errors: &[Code::InvalidOneTimeCode, Code::NoTotpPending, Code::TotpDisabled],
    example: r#"{
  "code": "123456"
}"#,
    ..Operation::new("confirm_totp")
};

/// Finish adding an authenticator app.
///
/// From then on, a login needs a code, and every other session of the account ends. If this is the account's
/// first second factor, the response also contains recovery codes, which are shown only once.
pub async fn confirm(
    accounts: Accounts,
    scope: SessionScope,
    Body(body): Body<ConfirmTotp>,
) -> Result<Enveloped<TotpConfirmed>, Error> {
    let codes = second_factor::confirm_totp(&accounts, scope.trail(), scope.session(), &body.code.0).await?;
    let recovery_codes = codes.map(|codes| codes.iter().map(RecoveryCode::expose).collect());
    Ok(private(TotpConfirmed { recovery_codes }))
}

pub const DELETE_ALL: Operation =
    Operation { errors: &[Code::SecondFactorNotFound], ..Operation::new("delete_totp") };

/// Remove the authenticator app.
///
/// Unless a passkey is required after the password, the recovery codes are also deleted, and a login requires
/// only the password.
pub async fn delete_all(
    accounts: Accounts,
    scope: SessionScope,
    _: NoInput,
) -> Result<Enveloped<Message>, Error> {
    let message = match second_factor::remove_totp(&accounts, scope.trail(), scope.session()).await? {
        true => "Your second factor is removed. You can now log in with your password alone.",
        false => {
            "Your authenticator app is removed. Logging in with your password still requires a second factor."
        }
    };
    Ok(ok(Message { message: message.to_owned() }))
}
