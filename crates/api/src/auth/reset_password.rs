//! POST /v1/auth/reset-password

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::gate::Visitor;
use accounts::{Accounts, passwords};
use input::record;
use input::types::Text;
use kernel::error::{Code, Error};
use web::input::Body;
use web::reply::{Enveloped, private};
use web::route::Operation;

use super::check_repeated;

record! {
    /// A new password, and the token from the e-mail.
    #[derive(Debug)]
    pub struct ResetPassword in Api {
        /// The token from the link in the e-mail.
        pub(crate) token: Text<512> = required,
        /// The new password.
        pub(crate) password: Text<1024> = required,
    }
    reads {
        /// The new password again.
        password_confirmation: Text<1024> = required,
    }
    check(fields) {
        let confirmation = password_confirmation.as_ref();
        check_repeated(fields, "password_confirmation", password.as_ref(), confirmation);
    }
}

/// The account whose password was reset.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PasswordReset {
    /// A human-readable message.
    message: String,
    /// The e-mail address.
    email: String,
}

pub const RESET_PASSWORD: Operation = Operation {
    errors: &[Code::InvalidToken, Code::PasswordQueueFull],
    example: r#"{
  "token": "VJCvSOPBd6-2vdmGOmfm_69aCHqs--JiBBkQllDW5lc",
  "password": "Violet-Kettle-Orbit-9",
  "password_confirmation": "Violet-Kettle-Orbit-9"
}"#,
    ..Operation::new("reset_password")
};

/// Set a new password with a token from an e-mail.
///
/// Every session of the account ends. If the address had never been verified, all other credentials of the
/// account are also revoked. If the password breaks a rule, the token stays valid.
pub async fn reset_password(
    accounts: Accounts,
    scope: Visitor,
    Body(body): Body<ResetPassword>,
) -> Result<Enveloped<PasswordReset>, Error> {
    let new = passwords::reset(&accounts, scope.trail(), &body.token.0, &body.password.0).await?;
    let message = "Your password has changed. Log in with the new one.".to_owned();
    Ok(private(PasswordReset { message, email: new.email }))
}
