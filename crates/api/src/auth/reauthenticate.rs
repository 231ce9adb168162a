//! POST /v1/auth/reauthenticate

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::gate::SessionScope;
use accounts::Accounts;
use accounts::reauthentication::{Proof, Tokens, prove};
use accounts::tokens::ACCESS_TOKEN_S;
use input::record;
use input::types::Text;
use kernel::error::Error;
use web::input::Body;
use web::reply::{Enveloped, private};

use super::BEARER;

record! {
    /// What a person proves with who they are.
    #[derive(Debug)]
    pub struct Reauthenticate in Api {
        pub password: Text<1024> = required,
        pub one_time_code: Option<Text<64>> = optional,
    }
}

/// The tokens of the session that takes the place of the one before.
#[derive(Serialize, JsonSchema)]
pub struct Reauthenticated {
    access_token: String,
    refresh_token: String,
    token_type: &'static str,
    /// The lifetime of the access token, in seconds.
    expires_in: i64,
}

/// Prove again who the caller is.
///
/// Returns the tokens of a new session, which takes the place of the one that asks: its tokens stop working. A wrong
/// password or code counts like a failed login.
pub async fn reauthenticate(
    accounts: Accounts,
    scope: SessionScope,
    Body(body): Body<Reauthenticate>,
) -> Result<Enveloped<Reauthenticated>, Error> {
    let proof = Proof {
        password: &body.password.0,
        one_time_code: body.one_time_code.as_ref().map(|code| code.0.as_str()),
        user_agent: scope.user_agent(),
    };
    let Tokens { access_token, refresh_token } =
        prove(&accounts, scope.trail(), scope.session(), &proof).await?;
    Ok(private(Reauthenticated {
        access_token,
        refresh_token,
        token_type: BEARER,
        expires_in: ACCESS_TOKEN_S,
    }))
}
