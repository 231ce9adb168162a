//! POST /v1/auth/forgot-password

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::gate::Visitor;
use accounts::{Accounts, passwords};
use input::record;
use input::types::Email;
use kernel::error::{Code, Error};
use web::input::Body;
use web::reply::{Enveloped, private};
use web::route::Operation;

record! {
    /// The e-mail address of an account.
    #[derive(Debug)]
    pub struct ForgotPassword in Api {
        /// The e-mail address.
        pub email: Email = required,
    }
}

/// The reply. It is the same whether or not an account has the address.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PasswordResetRequested")]
pub struct Requested {
    /// A human-readable message.
    message: String,
    /// The e-mail address.
    email: String,
}

pub const FORGOT_PASSWORD: Operation = Operation {
    errors: &[Code::TooManyAttempts],
    example: r#"{
  "email": "ada@example.com"
}"#,
    ..Operation::new("forgot_password")
};

/// Request an e-mail with a link that resets the password.
///
/// Neither the response nor its timing reveals whether an account has this address.
pub async fn forgot_password(
    accounts: Accounts,
    scope: Visitor,
    Body(body): Body<ForgotPassword>,
) -> Result<Enveloped<Requested>, Error> {
    passwords::request_reset(&accounts, scope.trail(), &body.email.display).await?;
    let message = "If an account with this address exists, we sent it an e-mail with a link.".to_owned();
    Ok(private(Requested { message, email: body.email.display }))
}
