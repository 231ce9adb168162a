//! POST /v1/auth/verify-email

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::gate::Visitor;
use accounts::{Accounts, verification};
use input::record;
use input::types::Text;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use web::input::Body;
use web::reply::{Enveloped, ok};
use web::route::Operation;

record! {
    /// The token from an e-mail.
    #[derive(Debug)]
    pub struct VerifyEmail in Api {
        /// The token from the link in the e-mail.
        token: Text<512> = required,
    }
}

/// The verified address.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "VerifiedEmail")]
pub struct Verified {
    /// The e-mail address.
    email: String,
    /// Always `true`.
    verified: bool,
    /// The time when the address was verified.
    verified_at: Time,
}

pub const VERIFY_EMAIL: Operation = Operation {
    errors: &[Code::InvalidToken],
    example: r#"{
  "token": "VJCvSOPBd6-2vdmGOmfm_69aCHqs--JiBBkQllDW5lc"
}"#,
    ..Operation::new("verify_email")
};

/// Verify an e-mail address with a token from an e-mail.
///
/// The person who reads the e-mail may not be the one who is logged in, so open invitations are accepted only
/// at the next login.
pub async fn verify_email(
    accounts: Accounts,
    scope: Visitor,
    Body(body): Body<VerifyEmail>,
) -> Result<Enveloped<Verified>, Error> {
    let verification::Verified { email, verified_at } =
        verification::verify(&accounts, scope.trail(), &body.token.0).await?;
    Ok(ok(Verified { email, verified: true, verified_at }))
}
