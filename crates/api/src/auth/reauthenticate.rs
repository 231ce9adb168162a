//! POST /v1/auth/reauthenticate

pub mod options;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::gate::SessionScope;
use crate::refusals::PASSWORD_GUESS;
use accounts::Accounts;
use accounts::passkeys::Signed;
use accounts::sign_in::reauthentication::{By, Proof, Tokens, prove};
use accounts::tokens::ACCESS_TOKEN_S;
use input::objects::AnyObject;
use input::record;
use input::types::Text;
use kernel::error::{Code, Error};
use web::input::Body;
use web::reply::{Enveloped, private};
use web::route::Operation;

use super::BEARER;

record! {
    /// The credentials that confirm the user's identity: the password, or a passkey.
    #[derive(Debug)]
    pub struct Reauthenticate in Api {
        /// The account's password, unless a passkey is used.
        password: Option<Text<1024>> = optional,
        /// A code from the authenticator app, or a recovery code. Required if the account has a second
        /// factor.
        one_time_code: Option<Text<64>> = optional,
        /// The value that was returned with the options.
        ceremony: Option<Text<4096>> = optional,
        /// The browser's response, as written by `PublicKeyCredential.toJSON`.
        credential: Option<AnyObject> = optional,
    }
    check(fields) {
        if let (Some(password), Some(ceremony), Some(credential)) = (&password, &ceremony, &credential) {
            let needed = match (password, ceremony, credential) {
                (Some(_), None, None) | (_, Some(_), Some(_)) => None,
                (_, None, Some(_)) => Some("ceremony"),
                (_, Some(_), None) => Some("credential"),
                (None, None, None) => Some("password"),
            };
            if let Some(name) = needed {
                fields.problem::<()>(name, "required", format!("`{name}` is required."));
            }
        }
    }
}

/// The tokens of the session that replaces the previous one.
#[derive(Serialize, JsonSchema)]
pub struct Reauthenticated {
    /// The access token, which is sent with each call as `Authorization: Bearer`.
    access_token: String,
    /// The refresh token, which is used to get new access tokens.
    refresh_token: String,
    /// Always `Bearer`.
    token_type: &'static str,
    /// The lifetime of the access token, in seconds.
    expires_in: i64,
}

pub const REAUTHENTICATE: Operation = Operation {
    errors: &[
        Code::ChallengeExpired,
        Code::InvalidCredential,
        Code::InvalidOneTimeCode,
        Code::NoPassword,
        Code::PasskeysDisabled,
        Code::PasswordsDisabled,
        Code::SecondFactorRequired,
    ],
    error_groups: &[PASSWORD_GUESS],
    example: r#"{
  "password": "Correct-Horse-7-Staple",
  "one_time_code": "123456"
}"#,
    ..Operation::new("reauthenticate")
};

/// Confirm the caller's identity again.
///
/// Takes the password, with a code if the account has a second factor; or a passkey. The response contains
/// the tokens of a new session, which replaces the calling session. The previous tokens stop working. A wrong
/// password or code counts as a failed login.
pub async fn reauthenticate(
    accounts: Accounts,
    scope: SessionScope,
    Body(body): Body<Reauthenticate>,
) -> Result<Enveloped<Reauthenticated>, Error> {
    let Reauthenticate { password, one_time_code, ceremony, credential } = &body;
    let by = match (ceremony, credential) {
        (Some(ceremony), Some(credential)) => {
            By::Passkey(Signed { ceremony: &ceremony.0, credential: &credential.0 })
        }
        _ => By::Password {
            password: password.as_ref().map_or("", |password| &password.0),
            one_time_code: one_time_code.as_ref().map(|code| code.0.as_str()),
        },
    };
    let proof = Proof { by, user_agent: scope.user_agent() };
    let Tokens { access_token, refresh_token } =
        prove(&accounts, scope.trail(), scope.session(), &proof).await?;
    Ok(private(Reauthenticated {
        access_token,
        refresh_token,
        token_type: BEARER,
        expires_in: ACCESS_TOKEN_S,
    }))
}
