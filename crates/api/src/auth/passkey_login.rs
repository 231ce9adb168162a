//! POST /v1/auth/passkey-login

pub mod options;

use crate::Api;
use crate::auth::login::LoggedIn;
use crate::gate::Visitor;
use accounts::Accounts;
use accounts::passkeys::Signed;
use accounts::sign_in::passkey::{self, log_in};
use input::objects::AnyObject;
use input::record;
use input::types::Text;
use kernel::error::{Code, Error};
use web::input::Body;
use web::reply::{Enveloped, private};
use web::route::Operation;

record! {
    /// A browser's response to the options of a login.
    #[derive(Debug)]
    pub struct PasskeyLogin in Api {
        /// The value that was returned with the options.
        ceremony: Text<4096> = required,
        /// The browser's response, as written by `PublicKeyCredential.toJSON`.
        credential: AnyObject = required,
        /// `true` for a longer session.
        remember_me: bool = or(false),
    }
}

pub const PASSKEY_LOGIN: Operation = Operation {
    errors: &[
        Code::AccountDisabled,
        Code::ChallengeExpired,
        Code::EmailNotVerified,
        Code::InvalidCredential,
        Code::PasskeysDisabled,
    ],
    example: r#"{
  "ceremony": "AX0rT2VuZQ",
  "credential": {
    "type": "public-key",
    "id": "3q2-7w",
    "rawId": "3q2-7w",
    "response": {
      "clientDataJSON": "eyJ0eXBlIjoid2ViYXV0aG4",
      "authenticatorData": "YXV0aERhdGE",
      "signature": "MEUCIQDBvq",
      "userHandle": "6vNCcs0IqE"
    }
  }
}"#,
    ..Operation::new("passkey_login")
};

/// Log in with a passkey.
///
/// Returns an access token and a refresh token. Neither a password nor a code is required, because the
/// authenticator verifies the user.
pub async fn passkey_login(
    accounts: Accounts,
    scope: Visitor,
    Body(body): Body<PasskeyLogin>,
) -> Result<Enveloped<LoggedIn>, Error> {
    let login = passkey::PasskeyLogin {
        signed: Signed { ceremony: &body.ceremony.0, credential: &body.credential.0 },
        remember_me: body.remember_me,
        user_agent: scope.user_agent(),
        second_step_of: None,
    };
    Ok(private(log_in(&accounts, scope.trail(), &login).await?.into()))
}
