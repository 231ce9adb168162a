//! POST /v1/auth/refresh-token

use schemars::JsonSchema;
use serde::Serialize;

use crate::access::SessionScope;
use crate::app::App;
use crate::error::Error;
use crate::input::Nothing;
use crate::reply::{Enveloped, private};
use crate::secrets::jwt::TokenKind;

use super::{BEARER, expires_in, sign};

/// A new access token of the same session.
#[derive(Serialize, JsonSchema)]
pub struct Refreshed {
    access_token: String,
    token_type: &'static str,
    /// Seconds.
    expires_in: i64,
}

/// Signs a new access token. The refresh token itself stays: the response has no field for another.
pub async fn refresh_token(app: App, scope: SessionScope, _: Nothing) -> Result<Enveloped<Refreshed>, Error> {
    let now = app.clock.now();
    let access_token = sign(&app, TokenKind::Access, scope.user_id(), scope.session_id(), now).await?;
    Ok(private(Refreshed { access_token, token_type: BEARER, expires_in: expires_in() }))
}
