//! POST /v1/auth/refresh-token

use schemars::JsonSchema;
use serde::Serialize;

use crate::gate::SessionScope;
use accounts::Accounts;
use accounts::tokens::{self, ACCESS_TOKEN_S};
use kernel::error::Error;
use web::input::NoInput;
use web::reply::{Enveloped, private};
use web::route::Operation;

use super::BEARER;

/// A new access token of the same session.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RefreshedToken")]
pub struct Refreshed {
    /// The access token, which is sent with each call as `Authorization: Bearer`.
    access_token: String,
    /// Always `Bearer`.
    token_type: &'static str,
    /// The lifetime of the access token, in seconds.
    expires_in: i64,
}

pub const REFRESH_TOKEN: Operation = Operation::new("refresh_token");

/// Get a new access token.
///
/// The refresh token isn't replaced and stays valid.
pub async fn refresh_token(
    accounts: Accounts,
    scope: SessionScope,
    _: NoInput,
) -> Result<Enveloped<Refreshed>, Error> {
    let access_token = tokens::refresh(&accounts, scope.trail(), scope.session(), scope.user_agent()).await?;
    Ok(private(Refreshed { access_token, token_type: BEARER, expires_in: ACCESS_TOKEN_S }))
}
