//! POST /v1/auth/login

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::gate::Visitor;
use accounts::Accounts;
use accounts::sign_in::{self, log_in};
use accounts::tokens::ACCESS_TOKEN_S;
use input::record;
use input::types::Text;
use kernel::error::{Code, Error};
use kernel::ids::UserId;
use web::input::Body;
use web::reply::{Enveloped, private};
use web::route::Operation;

use super::BEARER;

record! {
    /// Login credentials.
    #[derive(Debug)]
    pub struct Login in Api {
        /// The e-mail address.
        email: Text<320> = required,
        /// The password of the account.
        password: Text<1024> = required,
        /// A code from the authenticator app, or a recovery code. Required if the account has a second
        /// factor.
        one_time_code: Option<Text<64>> = optional,
        /// `true` for a longer session.
        remember_me: bool = or(false),
    }
}

/// The tokens of a new session.
#[derive(Serialize, JsonSchema)]
pub struct LoggedIn {
    /// The access token, which is sent with each call as `Authorization: Bearer`.
    access_token: String,
    /// The refresh token, which is used to get new access tokens.
    refresh_token: String,
    /// Always `Bearer`.
    token_type: &'static str,
    /// The lifetime of the access token, in seconds.
    expires_in: i64,
    /// The user who logged in.
    user: LoggedInUser,
}

/// The user in the reply to a login.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LoggedInUser {
    /// The user's id.
    id: UserId,
    /// The e-mail address.
    email: String,
    /// The username.
    username: String,
    /// The user's full name.
    full_name: Option<String>,
}

impl From<sign_in::LoggedIn> for LoggedIn {
    fn from(login: sign_in::LoggedIn) -> Self {
        let sign_in::LoggedIn { access_token, refresh_token, user } = login;
        Self {
            access_token,
            refresh_token,
            token_type: BEARER,
            expires_in: ACCESS_TOKEN_S,
            user: LoggedInUser {
                id: user.id,
                email: user.email,
                username: user.username,
                full_name: user.full_name,
            },
        }
    }
}

pub const LOGIN: Operation = Operation {
    errors: &[
        Code::AccountDisabled,
        Code::EmailNotVerified,
        Code::InvalidCredentials,
        Code::InvalidOneTimeCode,
        Code::PasswordQueueFull,
        Code::PasswordsDisabled,
        Code::SecondFactorRequired,
        Code::TooManyAttempts,
    ],
    example: r#"{
  "email": "ada@example.com",
  "password": "Correct-Horse-7-Staple"
}"#,
    ..Operation::new("login")
};

/// Log in.
///
/// Returns an access token and a refresh token. A login with an unknown address takes as long as one with a
/// wrong password. For an account with a second factor, `one_time_code` is required: a code from the
/// authenticator app, or a recovery code.
pub async fn login(
    accounts: Accounts,
    scope: Visitor,
    Body(body): Body<Login>,
) -> Result<Enveloped<LoggedIn>, Error> {
    let Login { email, password, one_time_code, remember_me } = &body;
    let login = sign_in::Login {
        email: &email.0,
        password: &password.0,
        one_time_code: one_time_code.as_ref().map(|code| code.0.as_str()),
        remember_me: *remember_me,
        user_agent: scope.user_agent(),
    };
    Ok(private(log_in(&accounts, scope.trail(), &login).await?.into()))
}
